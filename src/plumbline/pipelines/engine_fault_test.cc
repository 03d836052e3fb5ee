// A rank that fails in the middle of a run ends it for all, by name; what was handed out before stays.
#include <gtest/gtest.h>

#include "plumbline/pipelines/changed_ranks_test_util.h"

namespace plumbline {
namespace {

// The last rank is changed.
std::unique_ptr<Runtime> WithOddRank(const ParallelDegrees& degrees, void (*change)(Decoder&)) {
  return ChangedRanks(degrees, [&](Decoder& decoder, int rank) {
    if (rank + 1 == degrees.Ranks()) change(decoder);
  });
}

// The first stage refuses a token that the controller knows.
TEST(EngineFaultTest, ResultsBeforeAFailingRankStay) {
  const auto runtime = WithOddRank({.pp = 2}, [](Decoder& decoder) { decoder.config.vocab = 200; });
  std::vector<Request> requests;
  for (int64_t i = 0; i < 6; ++i)
    requests.push_back({.id = fmt::format("{}", i), .tokens = std::vector<int32_t>(30, 5)});
  requests[4].tokens[7] = 250;
  Engine engine = Engine::Create(*runtime, {.batch_size = 2}).value();
  Collector collector;
  const Status status = engine.Run(requests, collector);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().message, "rank 1: tokens: got id 250, want 0 to 199 (row 7)");
  ASSERT_EQ(collector.results.size(), 4u);
  ExpectSame(collector.results, RunCold(*LoadTiny("llama3"), std::span(requests).first(4)), "before");
  // The group is poisoned: another run says so at once.
  EXPECT_EQ(engine.Run(requests, collector).error().message, status.error().message);
}

TEST(EngineFaultTest, ARankThatDeclaresOtherInputsIsNamed) {
  for (const ParallelDegrees& degrees :
       {ParallelDegrees{.tp = 2}, {.dp = 2}, {.cp = 3}, {.tp = 2, .dp = 2}}) {
    const auto runtime = WithOddRank(
        degrees, [](Decoder& decoder) { decoder.config.declares.takes_batch_context_lengths = true; });
    Engine engine = Engine::Create(*runtime, {}).value();
    Collector collector;
    const std::vector<Request> requests = {{.id = "a", .tokens = SomeTokens(20, 1)}};
    const Status status = engine.Run(requests, collector);
    ASSERT_FALSE(status.has_value());
    const std::string says = fmt::format("rank {}: message: got ", degrees.Ranks() - 1);
    EXPECT_TRUE(status.error().message.starts_with(says)) << status.error().message;
    EXPECT_TRUE(collector.results.empty());
  }
}

}  // namespace
}  // namespace plumbline

// State that a decoder declares: a request has a slot of its own from admission to its end, zero when it
// begins, the same memory in every step, and free for others afterwards.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "plumbline/pipelines/changed_ranks_test_util.h"

namespace plumbline {
namespace {

constexpr int64_t kWidth = 3;

std::unique_ptr<Runtime> WithState(const ParallelDegrees& degrees) {
  return ChangedRanks(degrees, [](Decoder& decoder, int /*rank*/) {
    decoder.config.declares.state = {{.name = "recurrent", .shape = {kWidth}}};
  });
}

// Writes a request's number into the state as a decoder would, and looks whether it stays.
class Marker : public Collector {
 public:
  explicit Marker(Runtime& runtime) : runtime_(runtime) {}

  bool OnToken(size_t request, const RequestResult& /*result*/) override {
    const std::span<float> pool = Pool();
    const float mark = 1.0f + static_cast<float>(request);
    if (begun_.insert(request).second) {
      // Requests that begin in one step all have slots of zeros, it does not matter which. Every other slot
      // is marked: steps take whole prompts.
      for (size_t slot = 1; slot < pool.size() / kWidth; ++slot) {
        const std::span<float> own = pool.subspan(slot * kWidth, kWidth);
        if (std::ranges::count(own, 0.0f) < kWidth) continue;
        std::ranges::fill(own, mark);
        return true;
      }
      ADD_FAILURE() << "request " << request << " has no slot of zeros";
    }
    EXPECT_EQ(std::ranges::count(pool, mark), kWidth) << "request " << request;
    EXPECT_EQ(std::ranges::count(pool.first(kWidth), 0.0f), kWidth);  // nobody's slot
    return true;
  }
  Status OnResult(size_t request, RequestResult result) override {
    if (request == fails_at) return Failed("result: got one, want none (request {})", request);
    return Collector::OnResult(request, std::move(result));
  }
  int64_t engine = 0;
  size_t fails_at = SIZE_MAX;

 private:
  std::span<float> Pool() const {
    for (const InputTensor& leaf : runtime_.rank().Tensors(engine).state()) {
      if (leaf.data != nullptr) return leaf.As<float>();
    }
    return {};
  }
  Runtime& runtime_;
  std::set<size_t> begun_;
};

std::vector<Request> Requests(int64_t count) {
  std::vector<Request> requests;
  for (int64_t i = 0; i < count; ++i) {
    // The first pages are common, but a decoder with state takes none from the cache; nor does it guess.
    std::vector<int32_t> tokens = SomeTokens(64 + 5 * i, 1);
    requests.push_back({.id = fmt::format("{}", i),
                        .tokens = std::move(tokens),
                        .max_new_tokens = 3 + 2 * (i % 3),
                        .draft_tokens = 4});
  }
  return requests;
}

TEST(EngineStateTest, ARequestKeepsItsSlotFromAdmissionToItsEnd) {
  const auto runtime = WithState({});
  const std::vector<Request> requests = Requests(7);
  for (int64_t batch : {1, 2, 3}) {
    Engine engine = Engine::Create(*runtime, {.batch_size = batch}).value();
    Marker marker(*runtime);
    marker.engine = batch - 1;  // engines count up
    const Status status = engine.Run(requests, marker);
    ASSERT_TRUE(status.has_value()) << status.error().message;
    ExpectSame(marker.results, RunCold(*LoadTiny("llama3"), requests), "with state");
    EXPECT_EQ(engine.stats().rows_reused, 0);
    EXPECT_EQ(engine.stats().drafts_accepted + engine.stats().drafts_rejected, 0);
  }
}

// A run that ends early gives every slot back: as many further runs as one likes find room.
TEST(EngineStateTest, ACancelledRunGivesSlotsBack) {
  const auto runtime = WithState({});
  const std::vector<Request> requests = Requests(6);
  Engine engine = Engine::Create(*runtime, {.batch_size = 3}).value();
  for (size_t fails_at : {0u, 1u, 2u, 0u, 1u}) {
    Marker marker(*runtime);
    marker.fails_at = fails_at;
    EXPECT_EQ(engine.Run(requests, marker).error().message,
              fmt::format("result: got one, want none (request {})", fails_at));
  }
  Marker marker(*runtime);
  ASSERT_TRUE(engine.Run(requests, marker).has_value());
  EXPECT_EQ(marker.results.size(), requests.size());
}

TEST(EngineStateTest, EveryRankOfAReplicaHasTheState) {
  const std::vector<Request> requests = Requests(5);
  const auto want = RunCold(*LoadTiny("llama3"), requests);
  for (const ParallelDegrees& degrees :
       {ParallelDegrees{.tp = 2}, {.dp = 2}, {.pp = 2}, {.cp = 2}, {.dp = 2, .pp = 2}}) {
    const auto runtime = WithState(degrees);
    Engine engine = Engine::Create(*runtime, {.batch_size = 2}).value();
    ExpectSame(RunAll(engine, requests), want,
               fmt::format("tp {} dp {} pp {} cp {}", degrees.tp, degrees.dp, degrees.pp, degrees.cp));
  }
}

}  // namespace
}  // namespace plumbline

// What a request gets from the prefix cache is what it would have computed, and is not computed.
#include <gtest/gtest.h>

#include "plumbline/pipelines/engine_test_util.h"

namespace plumbline {
namespace {

constexpr int64_t kPage = 64;

std::vector<int32_t> Join(std::vector<int32_t> first, const std::vector<int32_t>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Request Score(std::vector<int32_t> tokens, int64_t score_from = 1, int32_t top = 3) {
  return {.id = "s", .tokens = std::move(tokens), .score_from = score_from, .top_logprobs = top};
}

Request Generate(std::vector<int32_t> tokens, int64_t new_tokens = 5) {
  const auto size = static_cast<int64_t>(tokens.size());
  return {.id = "g",
          .tokens = std::move(tokens),
          .score_from = size,
          .top_logprobs = 2,
          .max_new_tokens = new_tokens};
}

class EnginePrefix : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { runtime_ = LoadTiny(GetParam()); }

  // Runs `second` on an engine that has run `first`; returns the rows it was spared.
  int64_t Reused(const Request& first, const Request& second, const std::string& what) {
    Engine engine = Engine::Create(*runtime_, {}).value();
    RunAll(engine, {&first, 1});
    EXPECT_EQ(engine.stats().rows_reused, 0) << what;
    ExpectSame(RunAll(engine, {&second, 1}), RunCold(*runtime_, {&second, 1}), what);
    const auto prompt = static_cast<int64_t>(second.tokens.size());
    EXPECT_EQ(engine.stats().rows_run + engine.stats().rows_reused,
              prompt + std::max<int64_t>(0, second.max_new_tokens - 1))
        << what;
    return engine.stats().rows_reused;
  }

  std::unique_ptr<Runtime> runtime_;
};

TEST_P(EnginePrefix, GenerationPromptsCutAroundPageEdges) {
  const std::vector<int32_t> shared = SomeTokens(3 * kPage, 1);
  for (int64_t cut : {kPage - 1, kPage, kPage + 1, 2 * kPage - 1, 2 * kPage, 2 * kPage + 1, 3 * kPage}) {
    const std::vector<int32_t> head(shared.begin(), shared.begin() + cut);
    const std::string what = "cut " + std::to_string(cut);
    // Whole pages of the shared part; where the prompt ends with one, its last row runs.
    EXPECT_EQ(Reused(Generate(shared), Generate(Join(head, SomeTokens(9, 2))), what), cut / kPage * kPage);
    EXPECT_EQ(Reused(Generate(shared), Generate(head), what),
              cut % kPage == 0 ? cut - 1 : cut / kPage * kPage);
    EXPECT_EQ(Reused(Generate(head), Generate(shared), what),
              cut == 3 * kPage ? cut - 1 : cut / kPage * kPage);
  }
}

TEST_P(EnginePrefix, ScoredPromptsCutAroundPageEdges) {
  const std::vector<int32_t> shared = SomeTokens(3 * kPage, 1);
  for (int64_t cut : {kPage - 1, kPage, kPage + 1, 2 * kPage - 1, 2 * kPage, 2 * kPage + 1, 3 * kPage}) {
    const std::vector<int32_t> head(shared.begin(), shared.begin() + cut);
    const std::string what = "cut " + std::to_string(cut);
    // The row before the first token that is not known runs again.
    const int64_t known = cut / kPage * kPage, spared = known == 0 ? 0 : known - 1;
    EXPECT_EQ(Reused(Score(shared), Score(Join(head, SomeTokens(9, 2))), what), spared);
    EXPECT_EQ(Reused(Score(shared), Score(head, 1, 1), what), spared);
    EXPECT_EQ(Reused(Score(head), Score(shared), what), spared);
  }
}

TEST_P(EnginePrefix, ScoringStartsAroundPageEdges) {
  const std::vector<int32_t> tokens = SomeTokens(2 * kPage + 10, 1);
  const auto size = static_cast<int64_t>(tokens.size());
  for (int64_t from : {int64_t{1}, int64_t{2}, kPage - 1, kPage, kPage + 1, kPage + 2, 2 * kPage,
                       2 * kPage + 1, size - 1, size, size + 5}) {
    const std::string what = "from " + std::to_string(from);
    // Behind a generation's prompt pages have no log-probs: only those before `from` are of use.
    const int64_t silent = std::min(from / kPage, int64_t{2}) * kPage;
    const int64_t spared = silent == 0 ? 0 : silent < from ? silent : silent - 1;
    EXPECT_EQ(Reused(Generate(tokens), Score(tokens, from), what), spared);
    EXPECT_EQ(Reused(Score(tokens), Score(tokens, from), what), 2 * kPage < from ? 2 * kPage : 2 * kPage - 1);
    EXPECT_EQ(Reused(Score(tokens, from), Generate(tokens), what), 2 * kPage);
  }
}

TEST_P(EnginePrefix, PagesWithoutWhatIsWantedAreRunAndThenKnow) {
  const std::vector<int32_t> tokens = SomeTokens(2 * kPage + 1, 4);
  EXPECT_EQ(Reused(Score(tokens, 1, 1), Score(tokens, 1, 2), "narrower top"), 0);
  EXPECT_EQ(Reused(Score(tokens, 1, PrefixReuse::kMaxTopK + 1), Score(tokens, 1, 0), "too wide a top"), 0);
  EXPECT_EQ(Reused(Score(tokens, kPage / 2), Score(tokens), "scored from the middle"), 0);

  Engine engine = Engine::Create(*runtime_, {}).value();
  const std::vector<Request> requests{Generate(tokens), Score(tokens, 1, 1), Score(tokens, 1, 4),
                                      Score(tokens)};
  for (const Request& request : requests)
    ExpectSame(RunAll(engine, {&request, 1}), RunCold(*runtime_, {&request, 1}), "upgrade");
  EXPECT_EQ(engine.stats().rows_reused, 2 * kPage - 1);
}

TEST_P(EnginePrefix, ObservationsRunEveryRow) {
  const std::vector<int32_t> tokens = SomeTokens(2 * kPage + 3, 5);
  Request observed = Score(tokens);
  observed.max_logits = true;
  EXPECT_EQ(Reused(Score(tokens), observed, "max logits"), 0);
  EXPECT_EQ(Reused(observed, Score(tokens), "after max logits"), 2 * kPage - 1);

  Engine engine = Engine::Create(*runtime_, {.hidden_states = ReturnHiddenStates::kAll}).value();
  const Request request = Score(tokens);
  RunAll(engine, {&request, 1});
  RunAll(engine, {&request, 1});
  EXPECT_EQ(engine.stats().rows_reused, 0);
}

TEST_P(EnginePrefix, GeneratedTokensArePrefixesToo) {
  const std::vector<int32_t> prompt = SomeTokens(kPage - 6, 6);
  Engine engine = Engine::Create(*runtime_, {}).value();
  const Request first = Generate(prompt, kPage);
  const RequestResult turn = RunAll(engine, {&first, 1}).front();
  const Request second = Generate(Join(turn.tokens, SomeTokens(20, 7)));
  ExpectSame(RunAll(engine, {&second, 1}), RunCold(*runtime_, {&second, 1}), "second turn");
  EXPECT_EQ(engine.stats().rows_reused, kPage);
}

// All admitted at once: the first runs the shared pages, the others wait for them.
TEST_P(EnginePrefix, RequestsAdmittedTogetherShare) {
  const std::vector<int32_t> shared = SomeTokens(2 * kPage + 7, 8);
  std::vector<Request> requests;
  int64_t rows = 0;
  for (int64_t i = 0; i < 6; ++i) {
    requests.push_back(Score(Join(shared, SomeTokens(5 + i, i))));
    rows += static_cast<int64_t>(requests.back().tokens.size());
  }
  requests.push_back(Generate(shared));
  const std::vector<RequestResult> want = RunCold(*runtime_, requests);
  for (int64_t chunk : {1, 7, 63, 64, 65, 100, 512, 0}) {
    for (int64_t batch : {1, 3, 7}) {
      const std::string what = "chunk " + std::to_string(chunk) + ", batch " + std::to_string(batch);
      Engine engine = Engine::Create(*runtime_, {.chunk_size = chunk, .batch_size = batch}).value();
      ExpectSame(RunAll(engine, requests), want, what);
      EXPECT_EQ(engine.stats().rows_reused, 5 * (2 * kPage - 1) + 2 * kPage) << what;
    }
  }
}

TEST_P(EnginePrefix, OffMeansOff) {
  const Request request = Score(SomeTokens(2 * kPage + 1, 9));
  Engine engine = Engine::Create(*runtime_, {.prefix_cache = false}).value();
  RunAll(engine, {&request, 1});
  RunAll(engine, {&request, 1});
  EXPECT_EQ(engine.stats().rows_reused, 0);
}

// Room for three pages: known pages give way, also the one that a request which needs all three would copy.
TEST_P(EnginePrefix, KnownPagesGiveWayWhereMemoryIsNeeded) {
  const int64_t page_bytes = runtime_->decoder().Kv(kPage).PageBytes();
  const std::vector<int32_t> tokens = SomeTokens(3 * kPage, 10);
  std::vector<Request> requests;
  for (int64_t size : {3 * kPage, 3 * kPage, 2 * kPage, kPage + 1, 3 * kPage}) {
    requests.push_back(Score({tokens.begin(), tokens.begin() + size}));
    requests.push_back(Score(SomeTokens(size, 11)));
  }
  const std::vector<RequestResult> want = RunCold(*runtime_, requests);
  for (int64_t idle_pages : {0, 1, 3, 100}) {
    for (int64_t batch : {1, 4}) {
      Engine engine = Engine::Create(*runtime_, {.batch_size = batch,
                                                 .kv_bytes = 3 * page_bytes,
                                                 .prefix_cache_bytes = idle_pages * page_bytes})
                          .value();
      for (int round = 0; round < 2; ++round)
        ExpectSame(RunAll(engine, requests), want, "idle pages " + std::to_string(idle_pages));
    }
  }
}

TEST_P(EnginePrefix, ARunThatFailedLeavesNothingBehind) {
  class Failing : public EngineListener {
    Status OnResult(size_t, RequestResult) override { return Failed("no more"); }
  };
  const std::vector<int32_t> tokens = SomeTokens(2 * kPage, 12);
  const std::vector<Request> requests{Score({tokens.begin(), tokens.begin() + 5}), Score(tokens),
                                      Score(tokens)};
  Engine engine = Engine::Create(*runtime_, {.chunk_size = 10}).value();
  Failing failing;
  EXPECT_FALSE(engine.Run(requests, failing).has_value());
  ExpectSame(RunAll(engine, requests), RunCold(*runtime_, requests), "after a failure");
}

INSTANTIATE_TEST_SUITE_P(Models, EnginePrefix, testing::Values("smollm2", "mistral", "qwen3"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace plumbline

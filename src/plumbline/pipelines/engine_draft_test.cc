// Drafting changes how many steps a generation takes, and nothing else.
#include <gtest/gtest.h>

#include "plumbline/pipelines/draft.h"
#include "plumbline/pipelines/engine_test_util.h"

namespace plumbline {
namespace {

std::vector<int32_t> Drafts(std::vector<int32_t> tokens, int64_t limit) {
  std::vector<int32_t> drafts{77};
  ProposeDrafts(tokens, limit, drafts);
  return drafts;
}

TEST(ProposeDrafts, PrefersTheLongestThenTheLatestMatch) {
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(Drafts({1, 2, 3, 9, 2, 3, 8, 3, 7, 1, 2, 3}, 2), (Ids{9, 2}));
  EXPECT_EQ(Drafts({2, 3, 9, 2, 3, 8, 3, 7, 5, 2, 3}, 3), (Ids{8, 3, 7}));
  EXPECT_EQ(Drafts({3, 9, 3, 8, 5, 3}, 1), (Ids{8}));
  EXPECT_EQ(Drafts({4, 4}, 5), (Ids{4}));
  EXPECT_EQ(Drafts({1, 2, 3}, 5), Ids{});
  EXPECT_EQ(Drafts({1}, 5), Ids{});
  EXPECT_EQ(Drafts({4, 4, 4}, 0), Ids{});
}

class EngineDraft : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { runtime_ = LoadTiny(GetParam()); }

  static Request Generate(std::vector<int32_t> tokens, int64_t new_tokens, float temperature) {
    const auto size = static_cast<int64_t>(tokens.size());
    return {.id = "g",
            .tokens = std::move(tokens),
            .score_from = size,
            .top_logprobs = 3,
            .max_new_tokens = new_tokens,
            .sampling = {.temperature = temperature, .repetition_penalty = 1.0f, .seed = 7}};
  }
  // Greedy, nearly greedy, sampled, penalised; prompts that repeat, end beside a page edge, or hold one
  // token.
  static std::vector<Request> Requests() {
    std::vector<Request> requests;
    for (float temperature : {0.0f, 0.05f, 1.0f}) {
      for (int64_t size : {1, 12, 62, 65}) {
        std::vector<int32_t> tokens;
        for (int64_t i = 0; i < size; ++i) tokens.push_back(static_cast<int32_t>(17 * (i % 5) + 3));
        requests.push_back(Generate(tokens, 70, temperature));
      }
    }
    requests.push_back(requests[1]);
    requests.back().sampling.repetition_penalty = 1.05f;
    requests.push_back(requests[2]);
    requests.back().score_from = 3;
    requests.push_back({.id = "s", .tokens = SomeTokens(100, 3), .top_logprobs = 1});
    return requests;
  }
  static std::vector<Request> WithDrafts(std::vector<Request> requests, int32_t drafts) {
    for (Request& request : requests) request.draft_tokens = drafts;
    return requests;
  }

  std::unique_ptr<Runtime> runtime_;
};

TEST_P(EngineDraft, AnyNumberOfDraftsGivesTheSameBits) {
  const std::vector<Request> requests = Requests();
  const std::vector<RequestResult> want = RunCold(*runtime_, requests);
  int64_t plain_rows = 0;
  for (int32_t drafts : {0, 1, 2, 3, 7, kMaxDraftTokens}) {
    for (int64_t batch : {1, 16}) {
      const std::string what = std::to_string(drafts) + " drafts, batch " + std::to_string(batch);
      Engine engine =
          Engine::Create(*runtime_, {.chunk_size = 30, .batch_size = batch, .prefix_cache = false}).value();
      ExpectSame(RunAll(engine, WithDrafts(requests, drafts)), want, what);
      const EngineStats& stats = engine.stats();
      if (drafts == 0) plain_rows = stats.rows_run;
      EXPECT_EQ(stats.drafts_accepted > 0, drafts > 0) << what;
      EXPECT_EQ(stats.rows_run - stats.drafts_rejected, plain_rows) << what;
    }
  }
}

TEST_P(EngineDraft, StopsWhereItWouldHaveStopped) {
  std::vector<Request> requests = Requests();
  const std::vector<RequestResult> unstopped = RunCold(*runtime_, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].max_new_tokens == 0) continue;
    requests[i].stop_ids = {unstopped[i].tokens[requests[i].tokens.size() + 20]};
  }
  const std::vector<RequestResult> want = RunCold(*runtime_, requests);
  EXPECT_EQ(want[0].finish_reason, FinishReason::kStop);
  Engine engine = Engine::Create(*runtime_, {}).value();
  ExpectSame(RunAll(engine, WithDrafts(requests, 5)), want, "stop ids");

  class Stopping : public Collector {
    bool OnToken(size_t, const RequestResult& result) override {
      return static_cast<int64_t>(result.tokens.size()) - result.prompt_tokens < 40;
    }
  };
  Stopping stopping;
  const std::vector<Request> drafted = WithDrafts(Requests(), 5);
  ASSERT_TRUE(engine.Run(drafted, stopping).has_value());
  for (size_t i = 0; i < drafted.size(); ++i) {
    if (drafted[i].max_new_tokens == 0) continue;
    const size_t size = drafted[i].tokens.size() + 40;
    ASSERT_EQ(stopping.results[i].tokens.size(), size);
    EXPECT_TRUE(std::equal(stopping.results[i].tokens.begin(), stopping.results[i].tokens.end(),
                           unstopped[i].tokens.begin()));
    EXPECT_EQ(stopping.results[i].logprobs.size(), size - stopping.results[i].first_logprob);
  }
}

// Pages that drafts were accepted and rejected in are known prefixes afterwards.
TEST_P(EngineDraft, LeavesTheCacheAsPlainGenerationDoes) {
  Request request = Requests()[1];
  request.max_new_tokens = 150;
  request.draft_tokens = 7;
  Engine engine = Engine::Create(*runtime_, {}).value();
  const RequestResult first = RunAll(engine, {&request, 1}).front();
  EXPECT_GT(engine.stats().drafts_rejected, 0);
  const Request second{.id = "s", .tokens = first.tokens, .score_from = 130, .top_logprobs = 3};
  ExpectSame(RunAll(engine, {&second, 1}), RunCold(*runtime_, {&second, 1}), "scored after drafting");
  EXPECT_EQ(engine.stats().rows_reused, 128);
}

TEST_P(EngineDraft, ObservationsTakeNoGuesses) {
  Request request = Requests()[1];
  request.max_logits = true;
  const std::vector<RequestResult> want = RunCold(*runtime_, {&request, 1});
  request.draft_tokens = 4;
  Engine engine = Engine::Create(*runtime_, {}).value();
  ExpectSame(RunAll(engine, {&request, 1}), want, "max logits");
  EXPECT_EQ(engine.stats().drafts_accepted + engine.stats().drafts_rejected, 0);
}

TEST_P(EngineDraft, AStepsGuessesAreSharedAmongItsSequences) {
  const std::vector<Request> requests = WithDrafts(Requests(), 7);
  const std::vector<RequestResult> want = RunCold(*runtime_, Requests());
  for (int64_t draft_rows : {0, 3, 4, 9}) {
    Engine engine =
        Engine::Create(*runtime_, {.batch_size = 4, .draft_rows = draft_rows, .prefix_cache = false}).value();
    ExpectSame(RunAll(engine, requests), want, fmt::format("{} draft rows", draft_rows));
    const EngineStats& stats = engine.stats();
    EXPECT_EQ(stats.drafts_accepted + stats.drafts_rejected > 0, draft_rows >= 4) << draft_rows;
  }
}

TEST_P(EngineDraft, RefusesTooMany) {
  Request request = Requests()[0];
  Engine engine = Engine::Create(*runtime_, {}).value();
  for (int32_t drafts : {-1, kMaxDraftTokens + 1}) {
    request.draft_tokens = drafts;
    EXPECT_FALSE(engine.Check({&request, 1}).has_value());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EngineDraft, testing::Values("smollm2", "mistral"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace plumbline

#include <gtest/gtest.h>

#include <algorithm>

#include "plumbline/pipelines/kv_pages.h"
#include "plumbline/pipelines/score_requests.h"
#include "plumbline/pipelines/step_plan.h"
#include "plumbline/pipelines/stop_strings.h"

namespace plumbline {
namespace {

TEST(KvPagePool, HandsOutUpToItsLimitAndTakesBack) {
  KvPagePool pool({.page_size = 64, .page_bytes = 100}, 5 * 100 + 1);
  EXPECT_EQ(pool.max_pages(), 5);
  EXPECT_EQ(pool.PagesFor(65), 2);
  std::vector<uint32_t> a, b;
  EXPECT_TRUE(pool.Acquire(3, a));
  EXPECT_FALSE(pool.Acquire(3, b));
  EXPECT_TRUE(b.empty());
  EXPECT_TRUE(pool.Acquire(2, b));
  a.insert(a.end(), b.begin(), b.end());
  std::sort(a.begin(), a.end());
  EXPECT_EQ(std::unique(a.begin(), a.end()), a.end());
  EXPECT_GT(a.front(), 0u);
  EXPECT_LT(a.back(), pool.end_id());
  pool.Release(a);
  EXPECT_EQ(pool.pages_in_use(), 0);
  EXPECT_TRUE(pool.Acquire(5, b));
}

TEST(KvPagePool, DealsTheseOfASequenceOutToItsOwners) {
  KvPagePool pool({.page_size = 64, .page_bytes = 100, .owners = 3}, 6 * 100);
  std::vector<uint32_t> a, b;
  ASSERT_TRUE(pool.Acquire(4, a));
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i] % 3, i % 3);
  // Two pages a rank: the first rank has none left, the others one each.
  EXPECT_FALSE(pool.Fits(0, 1));
  EXPECT_FALSE(pool.Acquire(1, b));
  EXPECT_TRUE(pool.Fits(1, 2));
  pool.Release(a[3]);
  a.pop_back();
  EXPECT_TRUE(pool.Acquire(3, b));
  pool.Release(a);
  pool.Release(b);
  EXPECT_EQ(pool.pages_in_use(), 0);
}

Sequence MakeSequence(const Request& request, int64_t processed) {
  Sequence sequence;
  sequence.request = &request;
  sequence.result.tokens = request.tokens;
  sequence.result.prompt_tokens = static_cast<int64_t>(request.tokens.size());
  sequence.processed = processed;
  return sequence;
}

TEST(PlanStep, GroupsRunsByKindWithinTheBudget) {
  const std::vector<int32_t> ten(10, 1);
  const Request scored{.id = "s", .tokens = ten};
  const Request late{.id = "l", .tokens = ten, .score_from = 5};
  const Request generated{.id = "g", .tokens = ten, .score_from = 10, .max_new_tokens = 4};
  Sequence a = MakeSequence(late, 0), b = MakeSequence(generated, 9), c = MakeSequence(scored, 6),
           d = MakeSequence(generated, 0), e = MakeSequence(scored, 0);
  const std::vector<Sequence*> sequences{&a, &b, &c, &d, &e};
  std::vector<StepEntry> plan;
  PlanStep(sequences, 10, plan);
  ASSERT_EQ(plan.size(), 4u);
  EXPECT_EQ(plan[0].sequence, &c);  // the rest of a scored prompt, its last row riding along
  EXPECT_EQ(plan[0].rows, 4);
  EXPECT_EQ(plan[1].sequence, &b);
  EXPECT_EQ(plan[1].kind, RowKind::kSample);
  EXPECT_EQ(plan[2].sequence, &a);  // rows 0 to 3 score nothing, row 4 begins another run
  EXPECT_EQ(plan[2].kind, RowKind::kSilent);
  EXPECT_EQ(plan[2].rows, 4);
  EXPECT_EQ(plan[3].sequence, &d);
  EXPECT_EQ(plan[3].rows, 2);  // what the budget leaves; nothing for e
}

TEST(MakeWindows, ScoreEveryTokenOnceWithTheStridesContext) {
  EXPECT_EQ(MakeWindows(10, 16, 4).size(), 1u);
  EXPECT_EQ(MakeWindows(20, 16, 0).size(), 1u);
  for (int64_t stride : {1, 3, 7, 15}) {
    int64_t next = 1;
    for (const Window& window : MakeWindows(50, 16, stride)) {
      EXPECT_LE(window.end - window.begin, 16);
      EXPECT_EQ(window.begin + window.score_from, next) << stride;
      EXPECT_GE(window.score_from, 1);
      next = window.end;
    }
    EXPECT_EQ(next, 50) << stride;
  }
}

TEST(JoinWindows, ConcatenatesEntriesAndTakesTheMaximum) {
  const ScoreDocument document{.id = "d", .tokens = {1, 2, 3, 4}};
  std::vector<RequestResult> windows(2);
  windows[0] = {.tokens = {1, 2, 3},
                .prompt_tokens = 3,
                .first_logprob = 1,
                .logprobs = {-1, -2},
                .ranks = {1, 2},
                .top = {},
                .max_logits = {1, 5}};
  windows[1] = {.tokens = {3, 4},
                .prompt_tokens = 2,
                .first_logprob = 1,
                .logprobs = {-3},
                .ranks = {3},
                .top = {},
                .max_logits = {2, 4}};
  const RequestResult joined = JoinWindows(document, windows);
  EXPECT_EQ(joined.logprobs, (std::vector<float>{-1, -2, -3}));
  EXPECT_EQ(joined.ranks, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(joined.max_logits, (std::vector<float>{2, 5}));
  EXPECT_EQ(joined.tokens.size(), 4u);
}

TEST(StopStrings, HoldsBackWhatCouldBeginOneAndStopsAtTheFirst) {
  StopStrings stops({"###", "END"});
  EXPECT_EQ(stops.Push("abc#"), "abc");
  EXPECT_EQ(stops.Push("#x"), "##x");
  EXPECT_EQ(stops.Push("E"), "");
  EXPECT_EQ(stops.Push("N and E"), "EN and ");
  EXPECT_EQ(stops.Push("ND###"), "");
  EXPECT_TRUE(stops.stopped());
  EXPECT_EQ(stops.Push("more"), "");
}

TEST(StopStrings, FlushGivesWhatWasHeld) {
  StopStrings stops({"###"});
  EXPECT_EQ(stops.Push("a##"), "a");
  EXPECT_EQ(stops.Flush(), "##");
  EXPECT_FALSE(stops.stopped());
}

}  // namespace
}  // namespace plumbline

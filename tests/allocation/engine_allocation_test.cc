// What the engine asks memory for, around its steps and in them: what a request needs is there when it is
// admitted, and until one ends a step allocates nothing on any rank, listeners aside.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "plumbline/kernels/count_allocations.h"
#include "plumbline/pipelines/engine_test_util.h"

namespace plumbline {
namespace {

int64_t Requested() { return Allocations() + Mappings(); }

// Counts what is asked for between two steps, both of them included.
class Counter : public EngineListener {
 public:
  bool OnToken(size_t /*request*/, const RequestResult& /*result*/) override {
    ++tokens;
    return true;
  }
  Status OnResult(size_t /*request*/, RequestResult /*result*/) override {
    ++results;
    return {};
  }
  void OnProgress(int64_t /*rows_done*/, int64_t /*rows_total*/) override {
    const int64_t now = Requested();
    if (steps < kMostSteps) asked[steps] = last == 0 ? 0 : now - last;
    ++steps;
    last = Requested();
  }

  static constexpr int kMostSteps = 512;
  std::array<int64_t, kMostSteps> asked{};
  int steps = 0;
  int64_t last = 0, tokens = 0, results = 0;
};

struct Case {
  const char* name;
  std::vector<Request> requests;
  int first,
      last;  // steps in which no request is admitted or ends, behind the first that run everything once
};

// All requests are admitted at once.
std::vector<Case> Cases() {
  Case generate{.name = "generate", .first = 6, .last = 40};
  Case draft{.name = "drafts", .first = 6, .last = 10};
  Case score{.name = "score", .first = 5, .last = 7};  // of 400 rows in steps of 96
  for (int64_t i = 0; i < 3; ++i) {
    Request request{.tokens = SomeTokens(20 + i, i), .top_logprobs = 3, .max_new_tokens = 64};
    if (i == 2) request.sampling = {.temperature = 0.8f, .top_k = 20, .top_p = 0.9f, .seed = 7};
    generate.requests.push_back(request);
    request.draft_tokens = 3;
    request.sampling = {};
    draft.requests.push_back(request);
    score.requests.push_back({.tokens = SomeTokens(400, i), .top_logprobs = 5});
  }
  score.requests[1].max_logits = true;
  return {generate, draft, score};
}

// Warm-up is a matter of timing where several ranks run: a case is run until it is clean a few times.
void ExpectCleanSteps(const Runtime& runtime, const Case& c, const EngineOptions& options) {
  Engine engine = Engine::Create(runtime, options).value();
  constexpr int kCleanRuns = 3, kMostRuns = 60;
  int clean = 0;
  int64_t worst = 0;
  for (int run = 0; run < kMostRuns && clean < kCleanRuns; ++run) {
    Counter counter;
    const Status status = engine.Run(c.requests, counter);
    ASSERT_TRUE(status.has_value()) << status.error().message;
    ASSERT_EQ(counter.results, std::ssize(c.requests));
    ASSERT_GT(counter.steps, c.last);
    worst = 0;
    for (int step = c.first; step <= c.last; ++step) worst = std::max(worst, counter.asked[step]);
    clean = worst == 0 ? clean + 1 : 0;
  }
  EXPECT_EQ(clean, kCleanRuns) << c.name << ": a step still asked " << worst << " times";
}

TEST(EngineAllocationTest, StepsBetweenAdmissionAndEndAllocateNothing) {
  const std::string model = fmt::format("{}/tests/golden/models/llama3", PLUMBLINE_SOURCE_DIR);
  for (const ParallelDegrees& degrees :
       {ParallelDegrees{}, {.tp = 2}, {.dp = 2}, {.pp = 2}, {.cp = 2}, {.tp = 2, .pp = 2}}) {
    SCOPED_TRACE(fmt::format("tp {} dp {} pp {} cp {}", degrees.tp, degrees.dp, degrees.pp, degrees.cp));
    const RuntimeOptions options{
        .threads = degrees == ParallelDegrees{} ? 2 : 1, .isa = SupportedIsas().back(), .degrees = degrees};
    const auto runtime = Runtime::Load(model, options, nullptr);
    ASSERT_TRUE(runtime.has_value()) << runtime.error().message;
    for (const Case& c : Cases())
      ExpectCleanSteps(**runtime, c, {.chunk_size = 96, .batch_size = 4, .prefix_cache = false});
  }
}

// With the prefix cache a page that fills becomes known: its place in the tree, its tokens, their results.
TEST(EngineAllocationTest, APageThatFillsTakesItsEntryOfThePrefixCacheAndNoMore) {
  const auto runtime = LoadTiny("llama3");
  Engine engine = Engine::Create(*runtime, {.prefix_cache_bytes = 0}).value();
  const std::vector<Request> requests = {{.tokens = SomeTokens(40, 1), .max_new_tokens = 200}};
  constexpr int64_t kAPage = 8;  // calls of operator new
  for (int run = 0; run < 3; ++run) {
    Counter counter;
    ASSERT_TRUE(engine.Run(requests, counter).has_value());
    int pages = 0;
    for (int step = 6; step < counter.steps - 2; ++step) {
      if (run == 0 || counter.asked[step] == 0) continue;
      EXPECT_LE(counter.asked[step], kAPage) << "step " << step;
      ++pages;
    }
    EXPECT_LE(pages, 3);  // of 240 tokens, those behind the first steps
  }
}

}  // namespace
}  // namespace plumbline

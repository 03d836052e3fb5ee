// After warm-up a step of the whole runtime allocates nothing on any rank: packing it, the message, the
// decoder, what is made of its rows.
#include <gtest/gtest.h>

#include "plumbline/kernels/count_allocations.h"
#include "plumbline/pipelines/engine_test_util.h"
#include "plumbline/pipelines/step_driver.h"

namespace plumbline {
namespace {

// Sequences of two pages each that wait in the middle of a prompt or of a generation. Running a step does not
// move them, so that it can run again.
class Steps {
 public:
  static constexpr int64_t kSequences = 4, kPrompt = 100;

  explicit Steps(int replicas) : requests_(kSequences), sequences_(kSequences) {
    for (size_t i = 0; i < kSequences; ++i) {
      const bool generates = i % 2 == 1;
      requests_[i] = {.tokens = SomeTokens(kPrompt, static_cast<int64_t>(i)),
                      .top_logprobs = 5,
                      .max_logits = true,
                      .max_new_tokens = generates ? 10 : 0};
      Sequence& s = sequences_[i];
      s.index = i;
      s.request = &requests_[i];
      s.result.tokens.reserve(kPrompt + 10);
      s.result.tokens.assign(requests_[i].tokens.begin(), requests_[i].tokens.end());
      s.result.prompt_tokens = kPrompt;
      // Page i of a sequence lies on context-parallel rank i mod cp, which its id says.
      s.pages = {static_cast<uint32_t>(2 * i + 2), static_cast<uint32_t>(2 * i + 3)};
      s.replica = static_cast<int>(i / 2) % replicas;
      s.processed = generates ? kPrompt - 1 : 0;
      if (generates) s.drafts = {3, 4};
    }
  }

  // Entries of the sequences from `first` on, every other one or all: prompts score, others sample.
  MicroBatch Make(size_t first, size_t step, int64_t prompt_rows) {
    MicroBatch batch;
    for (RowKind kind : {RowKind::kScore, RowKind::kSample}) {
      for (size_t i = first; i < kSequences; i += step) {
        const bool samples = sequences_[i].generates();
        if (samples != (kind == RowKind::kSample)) continue;
        batch.entries.push_back({&sequences_[i], kind, samples ? 3 : prompt_rows});
      }
    }
    std::ranges::stable_sort(batch.entries, {}, [](const StepEntry& e) { return e.sequence->replica; });
    return batch;
  }

 private:
  std::vector<Request> requests_;
  std::vector<Sequence> sequences_;
};

void ExpectNoAllocations(const Runtime& runtime, ReturnHiddenStates hidden_states) {
  const ParallelDegrees& degrees = runtime.options().degrees;
  const bool layers = hidden_states == ReturnHiddenStates::kSelectedLayers;
  StepDriver driver(runtime, {.page_size = 64, .hidden_states = hidden_states},
                    layers ? std::vector<int32_t>{0, 1} : std::vector<int32_t>{});
  ASSERT_TRUE(driver
                  .Prepare({.max_rows = 300,
                            .max_sequences = Steps::kSequences,
                            .max_sequence_length = 128,
                            .total_pages = 2 * Steps::kSequences + 2})
                  .has_value());
  Steps steps(degrees.dp);
  // Prompts, a decode step, both; as many micro-batches as stages.
  std::vector<std::vector<MicroBatch>> kinds;
  for (const auto& [first, every, rows] :
       {std::tuple<size_t, size_t, int64_t>{0, 1, Steps::kPrompt}, {0, 2, 60}, {1, 2, 0}, {0, 1, 33}})
    kinds.emplace_back(degrees.pp, steps.Make(first, every, rows));
  int64_t heard = 0;
  const auto run = [&](const std::vector<MicroBatch>& batches) {
    return driver.Run(batches, [&heard](int64_t, const ModelOutputs& outputs) -> Status {
      heard += !MaxLogitsOf(outputs).empty();
      return {};
    });
  };
  // Warm-up is over when every thread has worked and every message been as large as it gets, which is a
  // matter of timing. A step that allocates each time is never warm.
  constexpr int kCleanPasses = 5, kMostPasses = 300;
  int clean = 0;
  for (int pass = 0; pass < kMostPasses && clean < kCleanPasses; ++pass) {
    const int64_t before = Allocations() + Mappings();
    for (const auto& batches : kinds) {
      if (!run(batches).has_value()) return (void)(ADD_FAILURE() << "a step failed");
    }
    clean = Allocations() + Mappings() == before ? clean + 1 : 0;
  }
  EXPECT_EQ(clean, kCleanPasses);
  EXPECT_GE(heard, kCleanPasses * std::ssize(kinds) * degrees.pp);
}

class RuntimeAllocationTest : public testing::TestWithParam<std::string> {};

TEST_P(RuntimeAllocationTest, AfterWarmUpAStepAllocatesNothingOnAnyRank) {
  const std::string model = std::string(PLUMBLINE_SOURCE_DIR) + "/tests/golden/models/" + GetParam();
  for (const ParallelDegrees& degrees : {ParallelDegrees{},
                                         {.tp = 2},
                                         {.dp = 2},
                                         {.pp = 2},
                                         {.cp = 2},
                                         {.tp = 2, .dp = 2},
                                         {.dp = 2, .ep = 2},
                                         {.tp = 2, .dp = 2, .ep = 4}}) {
    if (degrees.ep > 1 && GetParam() == "llama3") continue;
    SCOPED_TRACE(fmt::format("tp {} dp {} pp {} cp {} ep {}", degrees.tp, degrees.dp, degrees.pp, degrees.cp,
                             degrees.ep));
    const RuntimeOptions options{
        .threads = degrees == ParallelDegrees{} ? 2 : 1, .isa = SupportedIsas().back(), .degrees = degrees};
    const auto runtime = Runtime::Load(model, options, nullptr);
    ASSERT_TRUE(runtime.has_value()) << runtime.error().message;
    for (const ReturnHiddenStates hidden_states :
         {ReturnHiddenStates::kNone, ReturnHiddenStates::kSelectedLayers})
      ExpectNoAllocations(**runtime, hidden_states);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RuntimeAllocationTest, testing::Values("llama3", "qwen3_moe"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace plumbline

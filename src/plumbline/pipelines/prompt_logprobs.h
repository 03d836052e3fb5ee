// The sink that turns streamed logits of scored rows into log-probs of the next prompt tokens.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "plumbline/kernels/logprobs/logprob_accumulator.h"
#include "plumbline/nn/logits_postprocess.h"
#include "plumbline/pipelines/step_plan.h"

namespace plumbline {

class PromptLogProbs : public LogitsSink {
 public:
  // `entries` are the step's scored entries, in row order; results go to their sequences, rows in order.
  PromptLogProbs(const KernelContext& context, std::span<const StepEntry> entries);

  std::span<const int32_t> BeginRows(int64_t row_begin, int64_t row_end, int64_t vocab) override;
  void TakeChosen(std::span<const float> logits) override;
  void TakeTile(int64_t tile, MatrixView<const float> logits, int thread) override;
  void EndRows() override;

 private:
  struct Row {
    Sequence* sequence;
    int32_t next;  // the token whose log-prob the row gives, or -1 behind the last one
  };
  const KernelContext& context_;
  std::vector<Row> rows_;
  int32_t top_k_ = 0;
  int64_t row_begin_ = 0;
  std::vector<int32_t> chosen_;
  std::optional<LogProbAccumulator> accumulator_;  // of the first block, which is the largest; then reused
  std::vector<float> logprobs_;                    // the block's numbers, as LogProbRows has them
  std::vector<int64_t> ranks_;
  std::vector<TopEntry> top_;
};

}  // namespace plumbline

// Log-probs, ranks and the best alternatives of rows whose logits stream by, their ids cut over the ranks of
// a stage: no rank ever holds a row of logits, and none travels (numerics contract, section 2: nodes of the
// log-sum-exp, counts and best entries do).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plumbline/kernels/logprobs/logprob_accumulator.h"
#include "plumbline/nn/logits_sink.h"
#include "plumbline/nn/rank_context.h"
#include "plumbline/tensor/grow_buffer.h"

namespace plumbline {

class RowScores : public LogitsSink {
 public:
  // Before the rows of a step: targets [rows], the id whose log-prob is wanted of each row, or -1; top_k best
  // alternatives. Keeps `targets`.
  void Begin(const RankContext& rank, int64_t vocab, std::span<const int64_t> targets, int64_t top_k);

  // After them, on every rank: of row r, logprobs()[r], ranks()[r] (1 + tokens that rank before the target),
  // and top()[r * Top() ...], (log-prob, id) by (value descending, id ascending). Rows without a target have
  // NaN and 0.
  std::span<const float> logprobs() const { return logprobs_; }
  std::span<const int64_t> ranks() const { return ranks_; }
  std::span<const TopEntry> top() const { return top_; }
  int64_t Top() const { return shape_.Top(); }

  std::span<const int32_t> BeginRows(int64_t row_begin, int64_t row_end) override;
  void TakeChosen(std::span<const float> logits) override;
  void TakeTile(int64_t tile, MatrixView<const float> logits, int thread) override;
  Status EndRows() override;

 private:
  Status Merge(const LogProbRows& out);

  const RankContext* rank_ = nullptr;
  std::span<const int64_t> targets_;
  LogProbShape shape_;  // of the block
  int64_t row_begin_ = 0;
  std::vector<int32_t> chosen_, wanted_;  // wanted_: chosen_ with 0 for -1, which the head can look up
  std::vector<float> chosen_logits_;
  std::optional<LogProbAccumulator> accumulator_;
  std::vector<float> logprobs_;
  std::vector<int64_t> ranks_;
  std::vector<TopEntry> top_;
  GrowBuffer send_, received_;
};

}  // namespace plumbline

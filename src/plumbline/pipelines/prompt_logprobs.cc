#include "plumbline/pipelines/prompt_logprobs.h"

#include <algorithm>

namespace plumbline {

PromptLogProbs::PromptLogProbs(const KernelContext& context, std::span<const StepEntry> entries)
    : context_(context) {
  for (const StepEntry& entry : entries) {
    const std::vector<int32_t>& tokens = entry.sequence->result.tokens;
    top_k_ = std::max(top_k_, entry.sequence->request->top_logprobs);
    for (int64_t i = 0; i < entry.rows; ++i) {
      const size_t next = entry.sequence->processed + i + 1;
      rows_.push_back({entry.sequence, next < tokens.size() ? tokens[next] : -1});
    }
  }
}

std::span<const int32_t> PromptLogProbs::BeginRows(int64_t row_begin, int64_t row_end, int64_t vocab) {
  row_begin_ = row_begin;
  chosen_.clear();
  for (int64_t row = row_begin; row < row_end; ++row) chosen_.push_back(std::max(rows_[row].next, 0));
  const LogProbShape shape = {.rows = row_end - row_begin, .vocab = vocab, .top_k = top_k_};
  if (accumulator_.has_value()) {
    accumulator_->Reset(shape);
  } else {
    accumulator_.emplace(context_.isa, context_.pool.threads(), shape);
  }
  logprobs_.resize(shape.rows);
  ranks_.resize(shape.rows);
  top_.resize(shape.rows * shape.Top());
  return chosen_;
}

void PromptLogProbs::TakeChosen(std::span<const float> logits) { accumulator_->SetChosen(chosen_, logits); }

void PromptLogProbs::TakeTile(int64_t tile, MatrixView<const float> logits, int thread) {
  accumulator_->AddTile(tile, logits, thread);
}

void PromptLogProbs::EndRows() {
  accumulator_->Finish({.chosen_logprobs = logprobs_, .ranks = ranks_, .top = top_});
  const size_t top = logprobs_.empty() ? 0 : top_.size() / logprobs_.size();
  for (size_t i = 0; i < logprobs_.size(); ++i) {
    const Row& row = rows_[row_begin_ + i];
    if (row.next < 0) continue;
    RequestResult& result = row.sequence->result;
    result.logprobs.push_back(logprobs_[i]);
    result.ranks.push_back(ranks_[i]);
    // The best k of the widest request's list are the best k of a narrower one's.
    for (const TopEntry& entry : std::span(top_).subspan(i * top, result.top_k)) {
      result.top.emplace_back(entry.id, entry.value);
    }
  }
}

}  // namespace plumbline

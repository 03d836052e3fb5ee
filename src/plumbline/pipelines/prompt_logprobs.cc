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
  accumulator_ = std::make_unique<LogProbAccumulator>(context_.isa, context_.pool.threads(),
                                                      row_end - row_begin, vocab, top_k_);
  return chosen_;
}

void PromptLogProbs::TakeChosen(std::span<const float> logits) { accumulator_->SetChosen(chosen_, logits); }

void PromptLogProbs::TakeTile(int64_t tile, MatrixView<const float> logits, int thread) {
  accumulator_->AddTile(tile, logits, thread);
}

void PromptLogProbs::EndRows() {
  const std::vector<RowLogProbs> results = accumulator_->Finish();
  accumulator_.reset();
  for (size_t i = 0; i < results.size(); ++i) {
    const Row& row = rows_[row_begin_ + i];
    if (row.next < 0) continue;
    RequestResult& result = row.sequence->result;
    result.logprobs.push_back(results[i].chosen_logprob);
    result.ranks.push_back(results[i].rank);
    // The best k of the widest request's list are the best k of a narrower one's.
    result.top.insert(result.top.end(), results[i].top.begin(), results[i].top.begin() + result.top_k);
  }
}

}  // namespace plumbline

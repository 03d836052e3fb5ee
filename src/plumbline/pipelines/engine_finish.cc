// From the hidden states of a step's rows to log-probs, tokens and observations.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "plumbline/kernels/logprobs/logprobs.h"
#include "plumbline/pipelines/engine.h"
#include "plumbline/pipelines/prompt_logprobs.h"

namespace plumbline {

void Engine::TakeMaxLogits(std::span<const StepEntry> entries) {
  const int64_t layers = runtime_->config().layers, heads = runtime_->config().heads;
  const int64_t batch = static_cast<int64_t>(entries.size());
  for (int64_t b = 0; b < batch; ++b) {
    std::vector<float>& result = entries[b].sequence->result.max_logits;
    if (result.empty()) continue;
    for (int64_t layer = 0; layer < layers; ++layer) {
      const float* step = max_logits_.data() + (layer * batch + b) * heads;
      float* all = result.data() + layer * heads;
      for (int64_t h = 0; h < heads; ++h)
        all[h] = (step[h] > all[h] || std::isnan(step[h])) ? step[h] : all[h];
    }
  }
}

LogitsPostprocessInputs Engine::PostprocessInputs(std::span<const StepEntry> entries, int64_t first_row) {
  local_offsets_.assign(1, 0);
  for (const StepEntry& entry : entries) {
    local_offsets_.push_back(local_offsets_.back() + static_cast<uint32_t>(entry.rows));
  }
  const int64_t rows = local_offsets_.back();
  captured_rows_.clear();
  for (const MatrixView<float>& view : captured_views_) captured_rows_.push_back(view.Rows(first_row, rows));
  return {.h = workspace_.hidden.Rows(first_row, rows),
          .input_row_offsets = local_offsets_,
          .lm_head = &runtime_->decoder().head,
          .norm = &runtime_->decoder().final_norm,
          .return_hidden_states = options_.hidden_states,
          .capture_hidden_states = captured_rows_};
}

Status Engine::FinishScored(std::span<const StepEntry> entries, int64_t first_row, EngineListener& listener) {
  PromptLogProbs sink(context_, entries);
  LogitsPostprocessInputs in = PostprocessInputs(entries, first_row);
  in.return_logits = ReturnLogits::kAll;
  in.sink = &sink;
  ASSIGN_OR_RETURN(const LogitsPostprocessOutputs out, logits_postprocess(context_, in));
  for (const StepEntry& entry : entries) {
    // This step's alone: those before were looked at when they came.
    const std::span<const float> logprobs = entry.sequence->result.logprobs;
    for (float logprob : logprobs.last(std::min<size_t>(logprobs.size(), entry.rows))) {
      if (std::isnan(logprob)) {
        return Failed("log-prob: got NaN, want a number (request {})", entry.sequence->request->id);
      }
    }
  }
  return EmitHiddenStates(entries, out, listener);
}

Status Engine::FinishSampled(std::span<const StepEntry> entries, int64_t first_row,
                             EngineListener& listener) {
  LogitsPostprocessInputs in = PostprocessInputs(entries, first_row);
  // Every row's logits are wanted: each is a batch entry of its own. Where hidden states are wanted there are
  // no drafts, and this changes nothing.
  const int64_t rows = local_offsets_.back();
  local_offsets_.resize(rows + 1);
  std::iota(local_offsets_.begin(), local_offsets_.end(), 0u);
  in.input_row_offsets = local_offsets_;
  in.return_logits = ReturnLogits::kLastToken;
  ASSIGN_OR_RETURN(const LogitsPostprocessOutputs out, logits_postprocess(context_, in));
  const MatrixView<const float> logits = out.last_logits->Matrix();
  sampled_.assign(rows, 0);
  top_n_.assign(rows, 0);
  echo_.assign(rows, 0);
  int64_t row = 0;
  for (const StepEntry& entry : entries) {
    RETURN_IF_ERROR(SampleRows(*entry.sequence, logits.Rows(row, entry.rows), row));
    row += entry.rows;
  }
  ASSIGN_OR_RETURN(const auto logprobs,
                   compute_log_probabilities_ragged(context_, {.input_row_offsets = local_offsets_,
                                                               .logits = std::nullopt,
                                                               .next_token_logits = logits,
                                                               .tokens = sampled_,
                                                               .sampled_tokens = sampled_,
                                                               .batch_top_n = top_n_,
                                                               .batch_echo = echo_}));
  RETURN_IF_ERROR(EmitHiddenStates(entries, out, listener));
  row = 0;
  for (const StepEntry& entry : entries) {
    Sequence& sequence = *entry.sequence;
    int64_t taken = 0;
    for (; taken < entry.rows && logprobs[row + taken].has_value() && !sequence.finished; ++taken) {
      RETURN_IF_ERROR(
          TakeToken(sequence, static_cast<int32_t>(sampled_[row + taken]), *logprobs[row + taken], listener));
    }
    stats_.drafts_accepted += taken - 1;
    stats_.drafts_rejected += entry.rows - taken;
    row += entry.rows;
  }
  return {};
}

// Samples the rows of one sequence as if one came after the other: row i + 1 counts where row i gave the
// token it was run for. Rows that do not count keep top_n_ 0.
Status Engine::SampleRows(Sequence& sequence, MatrixView<const float> logits, int64_t first_row) {
  std::vector<int32_t>& history = sequence.result.tokens;
  const size_t known = history.size();
  for (int64_t i = 0; i < logits.rows; ++i) {
    const auto token =
        SampleToken({logits.Row(i), static_cast<size_t>(logits.cols)}, history,
                    static_cast<int64_t>(history.size()), sequence.request->sampling, sampling_);
    if (!token) {
      history.resize(known);
      return std::unexpected(token.error());
    }
    sampled_[first_row + i] = static_cast<uint32_t>(*token);
    top_n_[first_row + i] = std::max(1, sequence.result.top_k);
    if (i + 1 == logits.rows || sequence.drafts[i] != *token) break;
    history.push_back(*token);
  }
  history.resize(known);
  return {};
}

Status Engine::FinishSilent(std::span<const StepEntry> entries, int64_t first_row, EngineListener& listener) {
  if (options_.hidden_states == ReturnHiddenStates::kNone) return {};
  LogitsPostprocessInputs in = PostprocessInputs(entries, first_row);
  in.return_logits = ReturnLogits::kLastToken;
  ASSIGN_OR_RETURN(const LogitsPostprocessOutputs out, logits_postprocess(context_, in));
  return EmitHiddenStates(entries, out, listener);
}

Status Engine::EmitHiddenStates(std::span<const StepEntry> entries, const LogitsPostprocessOutputs& out,
                                EngineListener& listener) {
  if (out.hidden_states.empty()) return {};
  const bool last_only = options_.hidden_states == ReturnHiddenStates::kLast ||
                         options_.hidden_states == ReturnHiddenStates::kLastPerDevice;
  std::vector<MatrixView<const float>> states;
  for (size_t b = 0; b < entries.size(); ++b) {
    const int64_t begin = last_only ? static_cast<int64_t>(b) : local_offsets_[b];
    const int64_t rows = last_only ? 1 : entries[b].rows;
    const int64_t first = entries[b].sequence->processed + entries[b].rows - rows;
    states.clear();
    for (const Tensor& tensor : out.hidden_states) states.push_back(tensor.Matrix().Rows(begin, rows));
    RETURN_IF_ERROR(listener.OnHiddenStates(entries[b].sequence->index, first, states));
  }
  return {};
}

Status Engine::TakeToken(Sequence& sequence, int32_t token, const LogProbabilities& logprobs,
                         EngineListener& listener) {
  RequestResult& result = sequence.result;
  const float logprob = logprobs.token_log_probabilities.front();
  if (std::isnan(logprob))
    return Failed("log-prob: got NaN, want a number (request {})", sequence.request->id);
  const auto& top = logprobs.top_log_probabilities.front();
  result.tokens.push_back(token);
  result.logprobs.push_back(logprob);
  for (int32_t i = 0; i < result.top_k; ++i) {
    result.top.emplace_back(static_cast<int32_t>(top[i].first), top[i].second);
  }
  const int64_t generated = static_cast<int64_t>(result.tokens.size()) - result.prompt_tokens;
  const bool stop_id =
      std::ranges::find(sequence.request->stop_ids, token) != sequence.request->stop_ids.end();
  const bool go_on = listener.OnToken(sequence.index, result);
  if (stop_id || !go_on) result.finish_reason = FinishReason::kStop;
  sequence.finished = stop_id || !go_on || generated == sequence.request->max_new_tokens;
  return {};
}

}  // namespace plumbline

// From the hidden states of a step's rows to log-probs, tokens and observations.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "plumbline/kernels/logprobs/logprobs.h"
#include "plumbline/pipelines/engine.h"

namespace plumbline {

Status Engine::Finish(const MicroBatch& batch, const ModelOutputs& outputs, EngineListener& listener) {
  const Entries entries = batch.entries;
  if (const auto max_logits = MaxLogitsOf(outputs); !max_logits.empty()) TakeMaxLogits(entries, max_logits);
  if (const ScoredRows scores = ScoresOf(outputs); !scores.logprobs.empty())
    RETURN_IF_ERROR(FinishScored(entries, scores));
  // Hidden states first: a token is news of a step whose states are known.
  RETURN_IF_ERROR(EmitHiddenStates(entries, outputs, listener));
  const MatrixView<const float> logits = MatrixOf(*outputs.next_token_logits);
  if (logits.rows > 0) RETURN_IF_ERROR(FinishSampled(entries, logits, listener));
  for (const StepEntry& entry : entries) {
    Sequence& sequence = *entry.sequence;
    stats_.rows_run += entry.rows;
    // Of a generating sequence all but the last token are in the cache: rows of rejected drafts do not count.
    sequence.processed = entry.kind == RowKind::kSample
                             ? static_cast<int64_t>(sequence.result.tokens.size()) - 1
                             : sequence.processed + entry.rows;
    if (!sequence.generates() && sequence.processed == sequence.prompt_size()) sequence.finished = true;
    Replica& replica = replicas_[sequence.replica];
    replica.prefixes.Publish(replica.pool, sequence);
  }
  for (Sequence& sequence : active_) {
    if (!sequence.started)
      replicas_[sequence.replica].prefixes.Extend(replicas_[sequence.replica].pool, sequence);
  }
  return {};
}

// max_logits [layers, entries, heads].
void Engine::TakeMaxLogits(Entries entries, std::span<const float> max_logits) {
  const int64_t layers = runtime_->config().layers, heads = runtime_->config().heads;
  const int64_t batch = std::ssize(entries);
  for (int64_t b = 0; b < batch; ++b) {
    std::vector<float>& result = entries[b].sequence->result.max_logits;
    if (result.empty()) continue;
    for (int64_t layer = 0; layer < layers; ++layer) {
      const float* step = max_logits.data() + (layer * batch + b) * heads;
      float* all = result.data() + layer * heads;
      for (int64_t h = 0; h < heads; ++h)
        all[h] = (step[h] > all[h] || std::isnan(step[h])) ? step[h] : all[h];
    }
  }
}

Status Engine::FinishScored(Entries entries, const ScoredRows& scores) {
  int64_t row = 0;
  for (const StepEntry& entry : entries) {
    if (entry.kind != RowKind::kScore) continue;
    RequestResult& result = entry.sequence->result;
    for (const int64_t end = row + entry.rows; row < end; ++row) {
      if (scores.ranks[row] == 0) continue;  // the last row of a prompt: no token follows
      const float logprob = scores.logprobs[row];
      if (std::isnan(logprob)) {
        return Failed("log-prob: got NaN, want a number (request {})", entry.sequence->request->id);
      }
      result.logprobs.push_back(logprob);
      result.ranks.push_back(scores.ranks[row]);
      // The best k of the widest request's list are the best k of a narrower one's.
      for (int64_t i = row * scores.top_k; i < row * scores.top_k + result.top_k; ++i)
        result.top.emplace_back(scores.top_ids[i], scores.top_values[i]);
    }
  }
  return {};
}

Status Engine::FinishSampled(Entries entries, MatrixView<const float> logits, EngineListener& listener) {
  sampled_offsets_.resize(logits.rows + 1);
  std::iota(sampled_offsets_.begin(), sampled_offsets_.end(), 0u);
  sampled_.assign(logits.rows, 0);
  top_n_.assign(logits.rows, 0);
  echo_.assign(logits.rows, 0);
  int64_t row = 0;
  for (const StepEntry& entry : entries) {
    if (entry.kind != RowKind::kSample) continue;
    RETURN_IF_ERROR(SampleRows(*entry.sequence, logits.Rows(row, entry.rows), row));
    row += entry.rows;
  }
  RETURN_IF_ERROR(compute_log_probabilities_ragged(context_,
                                                   {.input_row_offsets = sampled_offsets_,
                                                    .logits = std::nullopt,
                                                    .next_token_logits = logits,
                                                    .tokens = sampled_,
                                                    .sampled_tokens = sampled_,
                                                    .batch_top_n = top_n_,
                                                    .batch_echo = echo_},
                                                   sampled_logprobs_));
  row = 0;
  for (const StepEntry& entry : entries) {
    if (entry.kind != RowKind::kSample) continue;
    Sequence& sequence = *entry.sequence;
    int64_t taken = 0;
    // Rows that count have one output.
    for (; taken < entry.rows && top_n_[row + taken] > 0 && !sequence.finished; ++taken) {
      RETURN_IF_ERROR(TakeToken(sequence, static_cast<int32_t>(sampled_[row + taken]),
                                sampled_logprobs_.offsets[row + taken], listener));
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

// Of each kind every replica's states come together, in the order of its entries of that kind.
Status Engine::EmitHiddenStates(Entries entries, const ModelOutputs& outputs, EngineListener& listener) {
  if (options_.hidden_states == ReturnHiddenStates::kNone) return {};
  const bool last_only = options_.hidden_states == ReturnHiddenStates::kLast ||
                         options_.hidden_states == ReturnHiddenStates::kLastPerDevice;
  const auto& states = outputs.hidden_states.leaves;
  next_state_.assign(kRowKinds * replicas_.size(), 0);
  for (const StepEntry& entry : entries) {
    const Sequence& sequence = *entry.sequence;
    const int64_t rows = last_only ? 1 : entry.rows;
    int64_t& begin = next_state_[kRowKinds * sequence.replica + static_cast<int>(entry.kind)];
    const int64_t first = hidden_shape_.First(entry.kind, sequence.replica);
    state_views_.clear();
    for (int64_t i = first; i < first + hidden_shape_.Tensors(); ++i)
      state_views_.push_back(MatrixOf(states[i].value).Rows(begin, rows));
    begin += rows;
    RETURN_IF_ERROR(
        listener.OnHiddenStates(sequence.index, sequence.processed + entry.rows - rows, state_views_));
  }
  return {};
}

// `output`: of the row's among sampled_logprobs_.
Status Engine::TakeToken(Sequence& sequence, int32_t token, int64_t output, EngineListener& listener) {
  RequestResult& result = sequence.result;
  const float logprob = sampled_logprobs_.logprobs[output];
  if (std::isnan(logprob))
    return Failed("log-prob: got NaN, want a number (request {})", sequence.request->id);
  const TopEntry* top = sampled_logprobs_.top.data() + sampled_logprobs_.top_offsets[output];
  const int32_t count = sampled_logprobs_.top_counts[output];
  if (count < result.top_k) {
    return Failed("logits: got {} above -inf, want {} alternatives (request {})", count, result.top_k,
                  sequence.request->id);
  }
  result.tokens.push_back(token);
  result.logprobs.push_back(logprob);
  for (int32_t i = 0; i < result.top_k; ++i) result.top.emplace_back(top[i].id, top[i].value);
  const int64_t generated = static_cast<int64_t>(result.tokens.size()) - result.prompt_tokens;
  const bool stop_id =
      std::ranges::find(sequence.request->stop_ids, token) != sequence.request->stop_ids.end();
  const bool go_on = listener.OnToken(sequence.index, result);
  if (stop_id || !go_on) result.finish_reason = FinishReason::kStop;
  sequence.finished = stop_id || !go_on || generated == sequence.request->max_new_tokens;
  return {};
}

}  // namespace plumbline

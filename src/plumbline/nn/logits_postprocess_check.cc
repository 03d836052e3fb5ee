#include "plumbline/nn/logits_postprocess_check.h"

#include <cmath>

namespace plumbline {
namespace {

Status CheckSplits(const RankContext& rank, const LogitsPostprocessInputs& in) {
  const auto& splits = in.data_parallel_splits;
  if (splits.empty()) return {};
  const int64_t batch = static_cast<int64_t>(in.input_row_offsets.size()) - 1;
  if (static_cast<int>(splits.size()) != rank.data.size() + 1) {
    return InvalidInput("data_parallel_splits: got {} elements, want {}, one more than replicas",
                        splits.size(), rank.data.size() + 1);
  }
  bool falls = false;
  for (size_t i = 0; i + 1 < splits.size(); ++i) falls = falls || splits[i + 1] < splits[i];
  if (splits.front() != 0 || splits.back() != batch || falls) {
    return InvalidInput(
        "data_parallel_splits: got {} to {}, want 0 to the {} sequences of the batch, never falling",
        splits.front(), splits.back(), batch);
  }
  return {};
}

Status CheckOffsets(const RankContext& rank, const LogitsPostprocessInputs& in) {
  const auto& offsets = in.input_row_offsets;
  if (offsets.empty()) return InvalidInput("input_row_offsets: got no elements, want batch + 1");
  if (offsets.front() != 0) return InvalidInput("input_row_offsets: got {} first, want 0", offsets.front());
  for (size_t b = 0; b + 1 < offsets.size(); ++b) {
    if (offsets[b + 1] <= offsets[b]) {
      return InvalidInput("input_row_offsets: got {} then {}, want at least one row (sequence {})",
                          offsets[b], offsets[b + 1], b);
    }
    const int64_t length = static_cast<int64_t>(offsets[b + 1]) - offsets[b];
    if (in.return_logits == ReturnLogits::kVariable && in.return_n_logits > length) {
      return InvalidInput("return_n_logits: got {}, want at most the {} rows of sequence {}",
                          in.return_n_logits, length, b);
    }
  }
  RETURN_IF_ERROR(CheckSplits(rank, in));
  const Range own = OwnSequences(rank, in);
  const int64_t rows = static_cast<int64_t>(offsets[own.end]) - offsets[own.begin];
  if (rows != in.h.rows) {
    return InvalidInput("h: got {} rows, want the {} of input_row_offsets", in.h.rows, rows);
  }
  return {};
}

Status CheckHiddenStates(const LogitsPostprocessInputs& in) {
  if (in.return_hidden_states == ReturnHiddenStates::kAllNormalized && in.norm == nullptr) {
    return InvalidInput("return_hidden_states: got all_normalized without a norm, want a norm");
  }
  if (in.return_hidden_states != ReturnHiddenStates::kSelectedLayers) return {};
  if (in.capture_hidden_states.empty()) {
    return InvalidInput("capture_hidden_states: got none, want at least one layer (selected_layers)");
  }
  for (const auto& capture : in.capture_hidden_states) {
    if (capture.rows != in.h.rows || capture.cols != in.h.cols) {
      return InvalidInput("capture_hidden_states: got [{}, {}], want h's [{}, {}]", capture.rows,
                          capture.cols, in.h.rows, in.h.cols);
    }
  }
  return {};
}

}  // namespace

Range OwnSequences(const RankContext& rank, const LogitsPostprocessInputs& in) {
  if (in.data_parallel_splits.empty()) return {0, static_cast<int64_t>(in.input_row_offsets.size()) - 1};
  if (static_cast<int>(in.data_parallel_splits.size()) != rank.data.size() + 1) return {};
  return {in.data_parallel_splits[rank.data.rank()], in.data_parallel_splits[rank.data.rank() + 1]};
}

Status CheckLogitsPostprocess(const RankContext& rank, const LogitsPostprocessInputs& in) {
  if (in.lm_head == nullptr) return InvalidInput("lm_head: got none, want one");
  if (in.h.cols != in.lm_head->hidden) {
    return InvalidInput("h: got {} columns, want the head's {}", in.h.cols, in.lm_head->hidden);
  }
  if (in.return_logits == ReturnLogits::kVariable && in.return_n_logits < 1) {
    return InvalidInput("return_n_logits: got {}, want at least 1", in.return_n_logits);
  }
  if (in.logits_scaling == 0.0f || std::isnan(in.logits_scaling)) {
    return InvalidInput("logits_scaling: got {}, want a divisor other than 0", in.logits_scaling);
  }
  if (in.logit_softcapping && !(*in.logit_softcapping > 0.0f)) {
    return InvalidInput("logit_softcapping: got {}, want above 0", *in.logit_softcapping);
  }
  RETURN_IF_ERROR(CheckHiddenStates(in));
  return CheckOffsets(rank, in);
}

}  // namespace plumbline

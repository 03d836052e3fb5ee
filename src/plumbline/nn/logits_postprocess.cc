#include "plumbline/nn/logits_postprocess.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace plumbline {
namespace {

constexpr std::pair<ReturnHiddenStates, std::string_view> kHiddenStateNames[] = {
    {ReturnHiddenStates::kNone, "none"},
    {ReturnHiddenStates::kLast, "last"},
    {ReturnHiddenStates::kLastPerDevice, "last_per_device"},
    {ReturnHiddenStates::kAllNormalized, "all_normalized"},
    {ReturnHiddenStates::kAll, "all"},
    {ReturnHiddenStates::kSelectedLayers, "selected_layers"},
};

Status CheckOffsets(const LogitsPostprocessInputs& in) {
  const auto& offsets = in.input_row_offsets;
  if (offsets.empty()) return InvalidInput("input_row_offsets: got no elements, want batch + 1");
  if (offsets.front() != 0 || offsets.back() != static_cast<uint64_t>(in.h.rows)) {
    return InvalidInput("input_row_offsets: got {} to {}, want 0 to the {} rows of h", offsets.front(),
                        offsets.back(), in.h.rows);
  }
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
  return {};
}

Status Check(const LogitsPostprocessInputs& in) {
  if (in.lm_head == nullptr) return InvalidInput("lm_head: got none, want one");
  if (in.h.cols != in.lm_head->weight->k()) {
    return InvalidInput("h: got {} columns, want the head's {}", in.h.cols, in.lm_head->weight->k());
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
  if (in.return_hidden_states == ReturnHiddenStates::kAllNormalized && in.norm == nullptr) {
    return InvalidInput("return_hidden_states: got all_normalized without a norm, want a norm");
  }
  if (in.return_hidden_states == ReturnHiddenStates::kSelectedLayers) {
    if (in.capture_hidden_states.empty()) {
      return InvalidInput("capture_hidden_states: got none, want at least one layer (selected_layers)");
    }
    for (const auto& capture : in.capture_hidden_states) {
      if (capture.rows != in.h.rows || capture.cols != in.h.cols) {
        return InvalidInput("capture_hidden_states: got [{}, {}], want h's [{}, {}]", capture.rows,
                            capture.cols, in.h.rows, in.h.cols);
      }
    }
  }
  return CheckOffsets(in);
}

// The rows of h to project, in output order.
std::vector<int64_t> SelectRows(const LogitsPostprocessInputs& in) {
  std::vector<int64_t> rows;
  for (size_t b = 0; b + 1 < in.input_row_offsets.size(); ++b) {
    const int64_t begin = in.input_row_offsets[b];
    const int64_t end = in.input_row_offsets[b + 1];
    int64_t first = end - 1;
    if (in.return_logits == ReturnLogits::kVariable) first = end - in.return_n_logits;
    if (in.return_logits == ReturnLogits::kAll) first = begin;
    for (int64_t row = first; row < end; ++row) rows.push_back(row);
  }
  return rows;
}

Result<Tensor> GatherRows(MatrixView<const float> h, std::span<const int64_t> rows) {
  ASSIGN_OR_RETURN(Tensor out, Tensor::Allocate(DType::kF32, {static_cast<int64_t>(rows.size()), h.cols}));
  const MatrixView<float> view = out.Matrix();
  for (size_t i = 0; i < rows.size(); ++i) std::copy_n(h.Row(rows[i]), h.cols, view.Row(i));
  return out;
}

Result<Tensor> CopyAll(MatrixView<const float> h) {
  std::vector<int64_t> rows(h.rows);
  for (int64_t i = 0; i < h.rows; ++i) rows[i] = i;
  return GatherRows(h, rows);
}

std::vector<int64_t> LastRows(std::span<const uint32_t> offsets) {
  std::vector<int64_t> rows;
  for (size_t b = 1; b < offsets.size(); ++b) rows.push_back(static_cast<int64_t>(offsets[b]) - 1);
  return rows;
}

Status StreamRows(const KernelContext& context, const LogitsPostprocessInputs& in,
                  const LogitsTransform& transform, const PackedActivations& packed) {
  std::vector<float> chosen;
  for (int64_t begin = 0; begin < packed.m(); begin += kStreamRows) {
    const int64_t end = std::min(packed.m(), begin + kStreamRows);
    const std::span<const int32_t> ids = in.sink->BeginRows(begin, end, in.lm_head->vocab());
    if (!ids.empty()) {
      chosen.resize(ids.size());
      RETURN_IF_ERROR(in.lm_head->ProjectChosen(context, packed, begin, end, transform, ids, chosen));
      in.sink->TakeChosen(chosen);
    }
    RETURN_IF_ERROR(in.lm_head->ProjectTiles(context, packed, begin, end, transform,
                                             [&](int64_t tile, MatrixView<const float> logits, int thread) {
                                               in.sink->TakeTile(tile, logits, thread);
                                             }));
    in.sink->EndRows();
  }
  return {};
}

// The last row of each sequence's selection is its last token's: copied, not projected again.
Status FillLogits(const KernelContext& context, const LogitsPostprocessInputs& in,
                  const LogitsTransform& transform, const PackedActivations& packed,
                  LogitsPostprocessOutputs& out) {
  const int64_t batch = static_cast<int64_t>(in.input_row_offsets.size()) - 1;
  const int64_t vocab = in.lm_head->vocab();
  ASSIGN_OR_RETURN(Tensor logits, Tensor::Allocate(DType::kF32, {packed.m(), vocab}));
  in.lm_head->Project(context, packed, transform, logits.Matrix());
  if (in.return_logits == ReturnLogits::kLastToken) {
    out.last_logits = std::move(logits);
    return {};
  }
  const bool variable = in.return_logits == ReturnLogits::kVariable;
  ASSIGN_OR_RETURN(out.offsets, Tensor::Allocate(variable ? DType::kI64 : DType::kU32, {batch + 1}));
  std::vector<int64_t> last(batch);
  for (int64_t b = 0; b <= batch; ++b) {
    const int64_t offset = variable ? b * in.return_n_logits : in.input_row_offsets[b];
    if (variable) {
      out.offsets->As<int64_t>()[b] = offset;
    } else {
      out.offsets->As<uint32_t>()[b] = static_cast<uint32_t>(offset);
    }
    if (b > 0) last[b - 1] = offset - 1;
  }
  ASSIGN_OR_RETURN(out.last_logits, GatherRows(std::as_const(logits).Matrix(), last));
  out.logits = std::move(logits);
  return {};
}

Status FillHiddenStates(const KernelContext& context, const LogitsPostprocessInputs& in,
                        LogitsPostprocessOutputs& out) {
  const auto append = [&](Result<Tensor> tensor) -> Status {
    if (!tensor) return std::unexpected(std::move(tensor).error());
    out.hidden_states.push_back(std::move(*tensor));
    return {};
  };
  switch (in.return_hidden_states) {
    case ReturnHiddenStates::kNone:
      return {};
    case ReturnHiddenStates::kLast:
    case ReturnHiddenStates::kLastPerDevice:
      return append(GatherRows(in.h, LastRows(in.input_row_offsets)));
    case ReturnHiddenStates::kAll:
      return append(CopyAll(in.h));
    case ReturnHiddenStates::kAllNormalized:
      RETURN_IF_ERROR(append(CopyAll(in.h)));
      in.norm->Apply(context, in.h, out.hidden_states.back().Matrix());
      return {};
    case ReturnHiddenStates::kSelectedLayers:
      for (const auto& capture : in.capture_hidden_states) RETURN_IF_ERROR(append(CopyAll(capture)));
      return {};
  }
  return {};
}

}  // namespace

std::string_view Name(ReturnHiddenStates mode) {
  for (const auto& [value, name] : kHiddenStateNames) {
    if (value == mode) return name;
  }
  return "?";
}

std::optional<ReturnHiddenStates> ParseReturnHiddenStates(std::string_view name) {
  for (const auto& [value, known] : kHiddenStateNames) {
    if (name == known) return value;
  }
  return std::nullopt;
}

std::vector<const Tensor*> LogitsPostprocessOutputs::Tuple() const {
  std::vector<const Tensor*> tuple;
  for (const auto* tensor : {&last_logits, &logits, &offsets}) {
    if (tensor->has_value()) tuple.push_back(&**tensor);
  }
  for (const Tensor& tensor : hidden_states) tuple.push_back(&tensor);
  return tuple;
}

Result<LogitsPostprocessOutputs> logits_postprocess(const KernelContext& context,
                                                    const LogitsPostprocessInputs& in) {
  RETURN_IF_ERROR(Check(in));
  const LogitsTransform transform{
      .scaling = in.logits_scaling, .softcap = in.logit_softcapping, .vocab = in.unpadded_vocab};
  LogitsPostprocessOutputs out;
  ASSIGN_OR_RETURN(Tensor rows, GatherRows(in.h, SelectRows(in)));
  if (in.norm != nullptr) in.norm->Apply(context, std::as_const(rows).Matrix(), rows.Matrix());
  PackedActivations packed;
  RETURN_IF_ERROR(packed.Pack(context, std::as_const(rows).Matrix(), in.lm_head->weight->compute()));
  if (in.sink != nullptr) {
    RETURN_IF_ERROR(StreamRows(context, in, transform, packed));
  } else {
    RETURN_IF_ERROR(FillLogits(context, in, transform, packed, out));
  }
  RETURN_IF_ERROR(FillHiddenStates(context, in, out));
  return out;
}

}  // namespace plumbline

#include "plumbline/nn/distributed_logits_postprocess.h"

#include <algorithm>
#include <array>
#include <utility>

#include "plumbline/nn/logits_postprocess_check.h"

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

void GatherRows(MatrixView<const float> h, std::span<const int64_t> rows, float* out) {
  for (int64_t row : rows) out = std::copy_n(h.Row(row), h.cols, out);
}

class Postprocess {
 public:
  Postprocess(const RankContext& rank, const LogitsPostprocessInputs& in, LogitsWorkspace& workspace)
      : rank_(rank), in_(in), w_(workspace), own_(OwnSequences(rank, in)) {}

  Result<LogitsPostprocessOutputs> Run() {
    RETURN_IF_ERROR(CheckLogitsPostprocess(rank_, in_));
    if (in_.project) {
      ASSIGN_OR_RETURN(const MatrixView<float> rows, SelectedRows());
      rows_ = rows.rows;
      if (rows_ > 0) {
        if (in_.norm != nullptr) in_.norm->Apply(rank_.kernel, rows, rows);
        RETURN_IF_ERROR(w_.packed.Pack(rank_.kernel, rows, in_.lm_head->compute));
      }
      RETURN_IF_ERROR(in_.sink != nullptr ? StreamRows() : FillLogits());
    }
    RETURN_IF_ERROR(FillHiddenStates());
    return out_;
  }

 private:
  int64_t Batch() const { return static_cast<int64_t>(in_.input_row_offsets.size()) - 1; }
  bool DataParallel() const { return !in_.data_parallel_splits.empty() && rank_.data.size() > 1; }

  // The rows of sequence b that are selected: the last ones.
  int64_t Count(int64_t b) const {
    if (in_.return_logits == ReturnLogits::kVariable) return in_.return_n_logits;
    if (in_.return_logits == ReturnLogits::kLastToken) return 1;
    return static_cast<int64_t>(in_.input_row_offsets[b + 1]) - in_.input_row_offsets[b];
  }

  // Of this rank's own sequences, as rows of h.
  void ListOwnRows() {
    w_.selected.clear();
    const int64_t first = in_.input_row_offsets[own_.begin];
    for (int64_t b = own_.begin; b < own_.end; ++b) {
      const int64_t end = in_.input_row_offsets[b + 1] - first;
      for (int64_t row = end - Count(b); row < end; ++row) w_.selected.push_back(row);
    }
  }

  // [selected rows of all replicas, hidden], in replica order.
  Result<MatrixView<float>> SelectedRows() {
    ListOwnRows();
    const int64_t own = static_cast<int64_t>(w_.selected.size()), hidden = in_.h.cols;
    ASSIGN_OR_RETURN(const std::span<float> mine, w_.own_rows.Get<float>(own * hidden));
    GatherRows(in_.h, w_.selected, mine.data());
    if (!DataParallel()) return MatrixView<float>(mine.data(), own, hidden);
    std::array<int64_t, kMaxRanks> floats{};
    int64_t total = 0;
    for (int r = 0; r < rank_.data.size(); ++r) {
      for (int64_t b = in_.data_parallel_splits[r]; b < in_.data_parallel_splits[r + 1]; ++b)
        floats[r] += Count(b) * hidden;
      total += floats[r];
    }
    ASSIGN_OR_RETURN(const std::span<float> all, w_.rows.Get<float>(total));
    RETURN_IF_ERROR(AllGatherFloats(rank_.data, mine, std::span(floats).first(rank_.data.size()), all));
    return MatrixView<float>(all.data(), total / hidden, hidden);
  }

  LogitsTransform Transform() const {
    return {.scaling = in_.logits_scaling, .softcap = in_.logit_softcapping, .vocab = in_.unpadded_vocab};
  }

  Status StreamRows() {
    const LmHead& head = *in_.lm_head;
    for (int64_t begin = 0; begin < rows_; begin += kStreamRows) {
      const int64_t end = std::min(rows_, begin + kStreamRows);
      const std::span<const int32_t> ids = in_.sink->BeginRows(begin, end);
      if (!ids.empty()) {
        w_.chosen.resize(ids.size());
        RETURN_IF_ERROR(
            head.ProjectChosen(rank_.kernel, w_.packed, begin, end, Transform(), ids, w_.head, w_.chosen));
        if (rank_.stage.size() > 1) RETURN_IF_ERROR(rank_.stage.AllReduceMax(w_.chosen));
        in_.sink->TakeChosen(w_.chosen);
      }
      RETURN_IF_ERROR(head.ProjectTiles(rank_.kernel, w_.packed, begin, end, Transform(), w_.head,
                                        [&](int64_t tile, MatrixView<const float> logits, int thread) {
                                          in_.sink->TakeTile(tile, logits, thread);
                                        }));
      RETURN_IF_ERROR(in_.sink->EndRows());
    }
    return {};
  }

  // [selected rows, vocab]: every rank's columns, gathered as blocks, put side by side.
  Result<MatrixView<const float>> Logits() {
    const LmHead& head = *in_.lm_head;
    const int64_t rows = rows_, columns = head.ids.size();
    const int ranks = rank_.stage.size();
    if (rows == 0) return MatrixView<const float>(nullptr, 0, head.vocab);
    ASSIGN_OR_RETURN(const std::span<float> logits, w_.logits.Get<float>(rows * head.vocab));
    if (ranks == 1) {
      const MatrixView<float> all(logits.data(), rows, head.vocab);
      head.Project(rank_.kernel, w_.packed, Transform(), all);
      return MatrixView<const float>(all);
    }
    ASSIGN_OR_RETURN(const std::span<float> mine, w_.shard_logits.Get<float>(rows * columns));
    head.Project(rank_.kernel, w_.packed, Transform(), {mine.data(), rows, columns});
    ASSIGN_OR_RETURN(const std::span<float> blocks, w_.gathered.Get<float>(rows * head.vocab));
    std::array<int64_t, kMaxRanks> floats{};
    for (int r = 0; r < ranks; ++r) floats[r] = rows * VocabOf(head.vocab, ranks, r).size();
    RETURN_IF_ERROR(AllGatherFloats(rank_.stage, mine, std::span(floats).first(ranks), blocks));
    const float* block = blocks.data();
    for (int r = 0; r < ranks; ++r) {
      const Range ids = VocabOf(head.vocab, ranks, r);
      for (int64_t row = 0; row < rows; ++row)
        std::copy_n(block + row * ids.size(), ids.size(), logits.data() + row * head.vocab + ids.begin);
      block += floats[r];
    }
    return MatrixView<const float>(logits.data(), rows, head.vocab);
  }

  // The last row of each sequence's selection is its last token's: copied, not projected again.
  Status FillLogits() {
    ASSIGN_OR_RETURN(const MatrixView<const float> logits, Logits());
    if (in_.return_logits == ReturnLogits::kLastToken) {
      out_.last_logits = logits;
      return {};
    }
    out_.logits = logits;
    ASSIGN_OR_RETURN(const std::span<float> last, w_.last_logits.Get<float>(Batch() * logits.cols));
    int64_t end = 0;
    for (int64_t b = 0; b < Batch(); ++b) {
      end += Count(b);
      std::copy_n(logits.Row(end - 1), logits.cols, last.data() + b * logits.cols);
    }
    out_.last_logits = MatrixView<const float>(last.data(), Batch(), logits.cols);
    if (in_.return_logits == ReturnLogits::kAll) {
      out_.all_offsets = in_.input_row_offsets;
      return {};
    }
    w_.variable_offsets.clear();
    for (int64_t b = 0; b <= Batch(); ++b) w_.variable_offsets.push_back(b * in_.return_n_logits);
    out_.variable_offsets = w_.variable_offsets;
    return {};
  }

  Status FillHiddenStates() {
    const ReturnHiddenStates mode = in_.return_hidden_states;
    w_.hidden_views.clear();
    if (mode == ReturnHiddenStates::kNone) return {};
    const bool last = mode == ReturnHiddenStates::kLast || mode == ReturnHiddenStates::kLastPerDevice;
    if (last) {
      w_.selected.clear();
      for (int64_t b = own_.begin; b < own_.end; ++b)
        w_.selected.push_back(in_.input_row_offsets[b + 1] - in_.input_row_offsets[own_.begin] - 1);
    }
    const int64_t rows = last ? static_cast<int64_t>(w_.selected.size()) : in_.h.rows, hidden = in_.h.cols;
    const bool selected_layers = mode == ReturnHiddenStates::kSelectedLayers;
    const int64_t tensors = selected_layers ? std::ssize(in_.capture_hidden_states) : 1;
    ASSIGN_OR_RETURN(const std::span<float> mine, w_.hidden_send.Get<float>(tensors * rows * hidden));
    float* next = mine.data();
    for (int64_t i = 0; i < tensors; ++i, next += rows * hidden) {
      const MatrixView<const float> source = selected_layers ? in_.capture_hidden_states[i] : in_.h;
      if (last) {
        GatherRows(source, w_.selected, next);
      } else {
        for (int64_t row = 0; row < rows; ++row) std::copy_n(source.Row(row), hidden, next + row * hidden);
      }
    }
    if (mode == ReturnHiddenStates::kAllNormalized) {
      const MatrixView<float> all(mine.data(), rows, hidden);
      in_.norm->Apply(rank_.kernel, all, all);
    }
    RETURN_IF_ERROR(ListHiddenStates(mine, tensors));
    if (mode == ReturnHiddenStates::kLast) w_.hidden_views.resize(1);
    out_.hidden_states = w_.hidden_views;
    return {};
  }

  // `tensors` tensors of every device, device-major.
  Status ListHiddenStates(std::span<const float> mine, int64_t tensors) {
    const int64_t hidden = in_.h.cols;
    std::array<int64_t, kMaxRanks> floats{};
    int devices = 1;
    floats[0] = static_cast<int64_t>(mine.size());
    const float* next = mine.data();
    if (in_.devices != nullptr && in_.devices->size() > 1) {
      devices = in_.devices->size();
      const int64_t own = static_cast<int64_t>(mine.size());
      RETURN_IF_ERROR(in_.devices->AllGather(std::as_bytes(std::span(&own, 1)),
                                             std::as_writable_bytes(std::span(floats).first(devices))));
      int64_t total = 0;
      for (int d = 0; d < devices; ++d) total += floats[d];
      ASSIGN_OR_RETURN(const std::span<float> all, w_.hidden_states.Get<float>(total));
      RETURN_IF_ERROR(AllGatherFloats(*in_.devices, mine, std::span(floats).first(devices), all));
      next = all.data();
    }
    for (int d = 0; d < devices; ++d) {
      const int64_t rows = floats[d] / (tensors * hidden);
      for (int64_t i = 0; i < tensors; ++i, next += rows * hidden)
        w_.hidden_views.emplace_back(next, rows, hidden);
    }
    return {};
  }

  const RankContext& rank_;
  const LogitsPostprocessInputs& in_;
  LogitsWorkspace& w_;
  const Range own_;
  int64_t rows_ = 0;  // selected, of all replicas
  LogitsPostprocessOutputs out_;
};

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

std::vector<LogitsPostprocessOutputs::Element> LogitsPostprocessOutputs::Tuple() const {
  std::vector<Element> tuple;
  for (const auto* tensor : {&last_logits, &logits}) {
    if (*tensor) tuple.push_back({DType::kF32, {(*tensor)->rows, (*tensor)->cols}, (*tensor)->data});
  }
  if (variable_offsets)
    tuple.push_back({DType::kI64, {std::ssize(*variable_offsets)}, variable_offsets->data()});
  if (all_offsets) tuple.push_back({DType::kU32, {std::ssize(*all_offsets)}, all_offsets->data()});
  for (const auto& states : hidden_states)
    tuple.push_back({DType::kF32, {states.rows, states.cols}, states.data});
  return tuple;
}

Result<LogitsPostprocessOutputs> distributed_logits_postprocess(const RankContext& rank,
                                                                const LogitsPostprocessInputs& in,
                                                                LogitsWorkspace& workspace) {
  return Postprocess(rank, in, workspace).Run();
}

}  // namespace plumbline

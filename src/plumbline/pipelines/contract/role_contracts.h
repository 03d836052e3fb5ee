// The role contract of a DECODER: what its forward takes (decoder contract, section 7.1; seed 002).
//
// A field that is absent is not an input: each optional field is set only where the deployment needs it. The
// canonical order is the order of the members, and ForEachLeafPair is the one place that walks it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plumbline/base/check.h"
#include "plumbline/pipelines/contract/input_tree.h"

namespace plumbline {

enum class DecoderField : uint8_t {
  kTokens,
  kVision,
  kInputRowOffsets,
  kTokenPositions,
  kHostInputRowOffsets,
  kReturnNLogits,
  kDataParallelSplits,
  kSignals,
  kKv,
  kBatchContextLengths,
  kEp,
  kLora,
  kConstants,
  kState,
  kScratch,
  kStageBoundary,
};
inline constexpr int kDecoderFields = 16;

std::string_view Name(DecoderField field);  // "tokens", ...
std::optional<DecoderField> ParseDecoderField(std::string_view name);

// The batch's image embeddings and where they go, one of each per device.
template <typename TensorT>
struct VisionInputs {
  std::vector<TensorT> embeddings;  // [P, hidden]
  std::vector<TensorT> indices;     // i32 [P], rows of `tokens`; negative: skipped
  friend bool operator==(const VisionInputs&, const VisionInputs&) = default;
};

template <typename TensorT, typename SignalT = TensorT>
struct DecoderInputs {
  TensorT tokens{};                                           // i64 [total_seq_len], ragged
  std::optional<VisionInputs<TensorT>> vision;                // where a VISION module is registered
  TensorT input_row_offsets{};                                // u32 [batch + 1]: each sequence's start
  std::optional<TensorT> token_positions;                     // i64 [total_seq_len]: absolute positions
  std::optional<TensorT> host_input_row_offsets;              // u32 [batch + 1] on the host, data parallel
  TensorT return_n_logits{};                                  // i64 [1] on the host
  std::optional<TensorT> data_parallel_splits;                // i64 [replicas + 1] on the host, data parallel
  std::optional<std::vector<SignalT>> signals;                // one a device
  InputTree<TensorT> kv;                                      // kv_cache_inputs.h
  std::optional<std::vector<TensorT>> batch_context_lengths;  // i32 [1], one a replica (or a device)
  std::optional<InputTree<TensorT>> ep;                       // expert-parallel buffers
  std::optional<std::vector<TensorT>> lora;                   // a decoder does not read them
  std::optional<InputTree<TensorT>> constants;                // checkpoint-backed, for the model's lifetime
  std::optional<InputTree<TensorT>> state;                    // in the order of the RequestStateStore
  std::optional<InputTree<TensorT>> scratch;                  // in the order of scratch_types
  std::optional<InputTree<TensorT>> stage_boundary;           // what the previous stage returned

  friend bool operator==(const DecoderInputs&, const DecoderInputs&) = default;
};

// Which leaf of a record: its field, then its path (trees, vision) and its number (tuples).
struct LeafName {
  DecoderField field = DecoderField::kTokens;
  std::string_view path;
  int index = -1;
};
std::string ToString(const LeafName& name);  // "tokens", "kv/replica0/cache_lengths", "signals/2"

namespace internal {

template <typename A, typename B, typename Fn>
void ForEachOfTuple(LeafName name, A& a, B& b, Fn& fn) {
  PLUMBLINE_CHECK(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    name.index = static_cast<int>(i);
    fn(name, a[i], b[i]);
  }
}

template <typename A, typename B, typename Fn>
void ForEachOfTree(DecoderField field, A& a, B& b, Fn& fn) {
  PLUMBLINE_CHECK(a.leaves.size() == b.leaves.size());
  for (size_t i = 0; i < a.leaves.size(); ++i) {
    fn(LeafName{.field = field, .path = a.leaves[i].path}, a.leaves[i].value, b.leaves[i].value);
  }
}

}  // namespace internal

// Calls fn(LeafName, leaf of a, leaf of b) for every leaf, in canonical order. The records have the same
// fields and leaf counts (CheckSameStructure).
template <typename A, typename B, typename Fn>
void ForEachLeafPair(A& a, B& b, Fn&& fn) {
  using enum DecoderField;
  const auto one = [&fn](DecoderField field, auto& x, auto& y) { fn(LeafName{.field = field}, x, y); };
  const auto maybe = [&one](DecoderField field, auto& x, auto& y) {
    if (x.has_value()) one(field, *x, *y);
  };
  const auto tuple = [&fn](DecoderField field, auto& x, auto& y) {
    if (x.has_value()) internal::ForEachOfTuple({.field = field}, *x, *y, fn);
  };
  const auto tree = [&fn](DecoderField field, auto& x, auto& y) {
    if (x.has_value()) internal::ForEachOfTree(field, *x, *y, fn);
  };
  one(kTokens, a.tokens, b.tokens);
  if (a.vision.has_value()) {
    internal::ForEachOfTuple({kVision, "embeddings"}, a.vision->embeddings, b.vision->embeddings, fn);
    internal::ForEachOfTuple({kVision, "indices"}, a.vision->indices, b.vision->indices, fn);
  }
  one(kInputRowOffsets, a.input_row_offsets, b.input_row_offsets);
  maybe(kTokenPositions, a.token_positions, b.token_positions);
  maybe(kHostInputRowOffsets, a.host_input_row_offsets, b.host_input_row_offsets);
  one(kReturnNLogits, a.return_n_logits, b.return_n_logits);
  maybe(kDataParallelSplits, a.data_parallel_splits, b.data_parallel_splits);
  tuple(kSignals, a.signals, b.signals);
  internal::ForEachOfTree(kKv, a.kv, b.kv, fn);
  tuple(kBatchContextLengths, a.batch_context_lengths, b.batch_context_lengths);
  tree(kEp, a.ep, b.ep);
  tuple(kLora, a.lora, b.lora);
  tree(kConstants, a.constants, b.constants);
  tree(kState, a.state, b.state);
  tree(kScratch, a.scratch, b.scratch);
  tree(kStageBoundary, a.stage_boundary, b.stage_boundary);
}

// Calls fn(LeafName, leaf&) for every leaf that is present, in canonical order.
template <typename Inputs, typename Fn>
void ForEachLeaf(Inputs& inputs, Fn&& fn) {
  ForEachLeafPair(inputs, inputs, [&fn](const LeafName& name, auto& leaf, auto&) { fn(name, leaf); });
}

// Which fields are present, in canonical order.
template <typename TensorT, typename SignalT>
std::array<bool, kDecoderFields> PresentFields(const DecoderInputs<TensorT, SignalT>& inputs) {
  return {true,
          inputs.vision.has_value(),
          true,
          inputs.token_positions.has_value(),
          inputs.host_input_row_offsets.has_value(),
          true,
          inputs.data_parallel_splits.has_value(),
          inputs.signals.has_value(),
          true,
          inputs.batch_context_lengths.has_value(),
          inputs.ep.has_value(),
          inputs.lora.has_value(),
          inputs.constants.has_value(),
          inputs.state.has_value(),
          inputs.scratch.has_value(),
          inputs.stage_boundary.has_value()};
}

}  // namespace plumbline

// DecoderInputs as a flat list and as one named tree.
//
// A flat list says nothing about itself, so it is read against a declared record, whose leaf counts are known
// field by field: no field is ever "the rest of the list".
#pragma once

#include <span>
#include <type_traits>
#include <variant>
#include <vector>

#include "plumbline/base/status.h"
#include "plumbline/pipelines/contract/input_tensor.h"
#include "plumbline/pipelines/contract/role_contracts.h"

namespace plumbline {

// The leaves in canonical order. LeafT holds every leaf: TensorT itself, or std::variant<TensorT, SignalT>
// where the signals are of another type.
template <typename LeafT, typename TensorT, typename SignalT>
std::vector<LeafT> FlattenAs(const DecoderInputs<TensorT, SignalT>& inputs) {
  std::vector<LeafT> flat;
  ForEachLeaf(inputs, [&flat](const LeafName&, const auto& leaf) { flat.push_back(LeafT(leaf)); });
  return flat;
}
template <typename TensorT>
std::vector<TensorT> Flatten(const DecoderInputs<TensorT>& inputs) {
  return FlattenAs<TensorT>(inputs);
}

// A record with the same fields and leaf counts as `declared`, its leaves empty.
template <typename TensorT, typename SignalT = TensorT, typename DeclaredT, typename DeclaredSignalT>
DecoderInputs<TensorT, SignalT> Like(const DecoderInputs<DeclaredT, DeclaredSignalT>& declared) {
  const auto tuple = [](const auto& from, auto& to) {
    if (from.has_value()) to.emplace(from->size());
  };
  const auto tree = [](const auto& from, auto& to) {
    if (from.has_value()) to = from->template Like<TensorT>();
  };
  DecoderInputs<TensorT, SignalT> inputs;
  if (declared.vision.has_value()) {
    inputs.vision.emplace();
    inputs.vision->embeddings.resize(declared.vision->embeddings.size());
    inputs.vision->indices.resize(declared.vision->indices.size());
  }
  if (declared.token_positions.has_value()) inputs.token_positions.emplace();
  if (declared.host_input_row_offsets.has_value()) inputs.host_input_row_offsets.emplace();
  if (declared.data_parallel_splits.has_value()) inputs.data_parallel_splits.emplace();
  tuple(declared.signals, inputs.signals);
  inputs.kv = declared.kv.template Like<TensorT>();
  tuple(declared.batch_context_lengths, inputs.batch_context_lengths);
  tree(declared.ep, inputs.ep);
  tuple(declared.lora, inputs.lora);
  tree(declared.constants, inputs.constants);
  tree(declared.state, inputs.state);
  tree(declared.scratch, inputs.scratch);
  tree(declared.stage_boundary, inputs.stage_boundary);
  return inputs;
}

// The record that `declared` describes, its leaves taken from `flat`. Refuses another number of leaves, and a
// signal where a tensor belongs (or the reverse), naming the leaf.
template <typename TensorT, typename SignalT = TensorT, typename LeafT, typename DeclaredT,
          typename DeclaredSignalT>
Result<DecoderInputs<TensorT, SignalT>> Unflatten(std::span<const LeafT> flat,
                                                  const DecoderInputs<DeclaredT, DeclaredSignalT>& declared) {
  DecoderInputs<TensorT, SignalT> inputs = Like<TensorT, SignalT>(declared);
  size_t wanted = 0;
  ForEachLeaf(declared, [&wanted](const LeafName&, const auto&) { ++wanted; });
  if (flat.size() != wanted) {
    return InvalidInput("decoder inputs: got {} leaves, want {} (the declared fields)", flat.size(), wanted);
  }
  size_t next = 0;
  Status status;
  ForEachLeaf(inputs, [&](const LeafName& name, auto& leaf) {
    using Wanted = std::remove_reference_t<decltype(leaf)>;
    const LeafT& given = flat[next++];
    if constexpr (std::is_same_v<LeafT, Wanted>) {
      leaf = given;
    } else if (const Wanted* value = std::get_if<Wanted>(&given)) {
      leaf = *value;
    } else if (status.has_value()) {
      const bool signal = name.field == DecoderField::kSignals;
      status = InvalidInput("{}: got a {}, want a {} (leaf {})", ToString(name), signal ? "tensor" : "signal",
                            signal ? "signal" : "tensor", next - 1);
    }
  });
  RETURN_IF_ERROR(status);
  return inputs;
}

// Field name -> subtree, in canonical order: what bind_input_tree takes. Tuples become leaves "signals/0".
InputTree<InputSpec> ToTree(const DecoderInputs<InputSpec>& inputs);

// The inverse, except that a field without leaves does not show in a tree and comes back absent. Refuses,
// naming the leaf: what is not a tree, an unknown field, fields out of canonical order, tuple leaves that are
// not numbered 0, 1, ..., and a tree without tokens, input_row_offsets or return_n_logits.
Result<DecoderInputs<InputSpec>> FromTree(const InputTree<InputSpec>& tree);

}  // namespace plumbline

#include "plumbline/pipelines/contract/decoder_inputs.h"

#include <algorithm>
#include <array>
#include <string>

namespace plumbline {
namespace {

constexpr std::array<std::string_view, kDecoderFields> kNames = {"tokens",
                                                                 "vision",
                                                                 "input_row_offsets",
                                                                 "token_positions",
                                                                 "host_input_row_offsets",
                                                                 "return_n_logits",
                                                                 "data_parallel_splits",
                                                                 "signals",
                                                                 "kv",
                                                                 "batch_context_lengths",
                                                                 "ep",
                                                                 "lora",
                                                                 "constants",
                                                                 "state",
                                                                 "scratch",
                                                                 "stage_boundary"};

// A leaf of the tree: its field and what of its path lies below the field.
struct Place {
  DecoderField field;
  std::string_view below;
};

Result<Place> PlaceOf(std::string_view path) {
  const size_t slash = path.find('/');
  const std::optional<DecoderField> field = ParseDecoderField(path.substr(0, slash));
  if (!field.has_value()) {
    return InvalidInput("input tree: got leaf {}, want one of the decoder's fields (bind_input_tree)", path);
  }
  return Place{*field, slash == path.npos ? std::string_view() : path.substr(slash + 1)};
}

Status PutOne(std::string_view path, std::string_view below, const InputSpec& spec, InputSpec& to) {
  if (!below.empty())
    return InvalidInput("input tree: got leaf {}, want a field of one leaf (bind_input_tree)", path);
  to = spec;
  return {};
}

Status PutNext(std::string_view path, std::string_view below, const InputSpec& spec,
               std::vector<InputSpec>& to) {
  if (below != std::to_string(to.size())) {
    return InvalidInput("input tree: got leaf {}, want number {} of its field (bind_input_tree)", path,
                        to.size());
  }
  to.push_back(spec);
  return {};
}

Status PutBelow(std::string_view path, std::string_view below, const InputSpec& spec,
                InputTree<InputSpec>& to) {
  if (below.empty())
    return InvalidInput("input tree: got leaf {}, want a field of subtrees (bind_input_tree)", path);
  to.Add(std::string(below), spec);
  return {};
}

template <typename T>
T& Present(std::optional<T>& field) {
  return field.has_value() ? *field : field.emplace();
}

Status PutVision(std::string_view path, std::string_view below, const InputSpec& spec,
                 VisionInputs<InputSpec>& to) {
  const size_t slash = below.find('/');
  const std::string_view part = below.substr(0, slash);
  const std::string_view number = slash == below.npos ? std::string_view() : below.substr(slash + 1);
  if (part == "embeddings" && to.indices.empty()) return PutNext(path, number, spec, to.embeddings);
  if (part == "indices") return PutNext(path, number, spec, to.indices);
  return InvalidInput("input tree: got leaf {}, want embeddings and then indices of vision (bind_input_tree)",
                      path);
}

Status Put(std::string_view path, const Place& place, const InputSpec& spec, DecoderInputs<InputSpec>& to) {
  using enum DecoderField;
  const auto [field, below] = place;
  switch (field) {
    case kTokens:
      return PutOne(path, below, spec, to.tokens);
    case kVision:
      return PutVision(path, below, spec, Present(to.vision));
    case kInputRowOffsets:
      return PutOne(path, below, spec, to.input_row_offsets);
    case kTokenPositions:
      return PutOne(path, below, spec, Present(to.token_positions));
    case kHostInputRowOffsets:
      return PutOne(path, below, spec, Present(to.host_input_row_offsets));
    case kReturnNLogits:
      return PutOne(path, below, spec, to.return_n_logits);
    case kDataParallelSplits:
      return PutOne(path, below, spec, Present(to.data_parallel_splits));
    case kSignals:
      return PutNext(path, below, spec, Present(to.signals));
    case kKv:
      return PutBelow(path, below, spec, to.kv);
    case kBatchContextLengths:
      return PutNext(path, below, spec, Present(to.batch_context_lengths));
    case kEp:
      return PutBelow(path, below, spec, Present(to.ep));
    case kLora:
      return PutNext(path, below, spec, Present(to.lora));
    case kConstants:
      return PutBelow(path, below, spec, Present(to.constants));
    case kState:
      return PutBelow(path, below, spec, Present(to.state));
    case kScratch:
      return PutBelow(path, below, spec, Present(to.scratch));
    case kStageBoundary:
      return PutBelow(path, below, spec, Present(to.stage_boundary));
  }
  return {};
}

}  // namespace

std::string_view Name(DecoderField field) { return kNames[static_cast<size_t>(field)]; }

std::optional<DecoderField> ParseDecoderField(std::string_view name) {
  const auto* found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<DecoderField>(found - kNames.begin());
}

std::string ToString(const LeafName& name) {
  std::string text(Name(name.field));
  if (!name.path.empty()) text.append("/").append(name.path);
  if (name.index >= 0) text.append("/").append(std::to_string(name.index));
  return text;
}

InputTree<InputSpec> ToTree(const DecoderInputs<InputSpec>& inputs) {
  InputTree<InputSpec> tree;
  ForEachLeaf(inputs,
              [&tree](const LeafName& name, const InputSpec& spec) { tree.Add(ToString(name), spec); });
  return tree;
}

Result<DecoderInputs<InputSpec>> FromTree(const InputTree<InputSpec>& tree) {
  RETURN_IF_ERROR(CheckTree(tree, "bind_input_tree"));
  DecoderInputs<InputSpec> inputs;
  std::array<bool, kDecoderFields> seen{};
  int last = 0;
  for (const auto& leaf : tree.leaves) {
    ASSIGN_OR_RETURN(const Place place, PlaceOf(leaf.path));
    const int field = static_cast<int>(place.field);
    if (field < last) {
      return InvalidInput("input tree: got {} after {}, want the canonical order (bind_input_tree)",
                          Name(place.field), kNames[last]);
    }
    last = field;
    seen[field] = true;
    RETURN_IF_ERROR(Put(leaf.path, place, leaf.value, inputs));
  }
  for (DecoderField field :
       {DecoderField::kTokens, DecoderField::kInputRowOffsets, DecoderField::kReturnNLogits}) {
    if (!seen[static_cast<int>(field)]) {
      return InvalidInput("input tree: got no {}, want it in every decoder's inputs (bind_input_tree)",
                          Name(field));
    }
  }
  return inputs;
}

}  // namespace plumbline

#include "plumbline/pipelines/contract/model_outputs.h"

#include <algorithm>

namespace plumbline {
namespace {

constexpr std::string_view kHidden = "hidden_states";
constexpr std::string_view kBoundary = "stage_boundary";

// What lies below `name` in `path` (empty where the path is the name itself), or nothing.
std::optional<std::string_view> Below(std::string_view path, std::string_view name) {
  if (path == name) return std::string_view();
  if (path.size() > name.size() && path.starts_with(name) && path[name.size()] == '/') {
    return path.substr(name.size() + 1);
  }
  return std::nullopt;
}

Status CheckTensor(std::string_view name, const InputTensor& tensor, DType dtype, int rank) {
  if (tensor.dtype != dtype) {
    return InvalidInput("{}: got dtype {}, want {} (process_outputs)", name, Info(tensor.dtype).name,
                        Info(dtype).name);
  }
  if (tensor.shape.rank() != rank) {
    return InvalidInput("{}: got shape {}, want {} dimensions (process_outputs)", name,
                        ToString(tensor.shape), rank);
  }
  return {};
}

Status CheckPresence(std::string_view name, bool got, bool want) {
  if (got && !want)
    return InvalidInput("{}: got an output, want none for these logits (process_outputs)", name);
  if (want && !got)
    return InvalidInput("{}: got no output, want one for these logits (process_outputs)", name);
  return {};
}

int64_t LastOffset(const InputTensor& offsets) {
  const int64_t last = offsets.shape.Elements() - 1;
  return offsets.dtype == DType::kI64 ? offsets.As<int64_t>()[last] : offsets.As<uint32_t>()[last];
}

Status CheckLogits(const ModelOutputs& outputs, ReturnLogits mode, bool may_omit) {
  const bool all = mode != ReturnLogits::kLastToken;
  const bool streamed = may_omit && !outputs.next_token_logits.has_value() && !outputs.logits.has_value();
  if (streamed) return CheckPresence("logit_offsets", outputs.logit_offsets.has_value(), false);
  RETURN_IF_ERROR(CheckPresence("next_token_logits", outputs.next_token_logits.has_value(), true));
  RETURN_IF_ERROR(CheckPresence("logits", outputs.logits.has_value(), all));
  RETURN_IF_ERROR(CheckPresence("logit_offsets", outputs.logit_offsets.has_value(), all));
  RETURN_IF_ERROR(CheckTensor("next_token_logits", *outputs.next_token_logits, DType::kF32, 2));
  if (!all) return {};
  RETURN_IF_ERROR(CheckTensor("logits", *outputs.logits, DType::kF32, 2));
  const DType dtype = mode == ReturnLogits::kVariable ? DType::kI64 : DType::kU32;
  RETURN_IF_ERROR(CheckTensor("logit_offsets", *outputs.logit_offsets, dtype, 1));
  const InputShape &next = outputs.next_token_logits->shape, &shape = outputs.logits->shape;
  if (outputs.logit_offsets->shape[0] != next[0] + 1) {
    return InvalidInput("logit_offsets: got {} offsets, want {} of {} sequences (process_outputs)",
                        outputs.logit_offsets->shape[0], next[0] + 1, next[0]);
  }
  if (shape[0] != LastOffset(*outputs.logit_offsets) || shape[1] != next[1]) {
    return InvalidInput("logits: got shape {}, want [{}, {}] (process_outputs)", ToString(shape),
                        LastOffset(*outputs.logit_offsets), next[1]);
  }
  return {};
}

Status CheckNamedHidden(const InputTree<InputTensor>& got, std::span<const std::string> want) {
  for (size_t i = 0; i < std::max(got.leaves.size(), want.size()); ++i) {
    if (i >= want.size() || i >= got.leaves.size() || got.leaves[i].path != want[i]) {
      return InvalidInput("hidden_states: got {}, want {} (process_outputs)",
                          i < got.leaves.size() ? got.leaves[i].path : "none",
                          i < want.size() ? want[i] : "none");
    }
    RETURN_IF_ERROR(CheckTensor(want[i], got.leaves[i].value, DType::kF32, 2));
  }
  return {};
}

Status CheckExtra(const InputTree<InputTensor>& got, std::span<const OutputType> want) {
  for (const OutputType& type : want) {
    const InputTensor* tensor = got.Find(type.name);
    if (tensor == nullptr) {
      return InvalidInput("{}: got no output, want the one that the decoder declares (process_outputs)",
                          type.name);
    }
    RETURN_IF_ERROR(CheckTensor(type.name, *tensor, type.dtype, type.rank));
  }
  return {};
}

Status CheckHidden(size_t got, const BatchProcessorRuntime& runtime) {
  const size_t devices = runtime.devices.size();
  const auto refuse = [got](const auto& want) {
    return InvalidInput("hidden_states: got {} tensors, want {} (process_outputs)", got, want);
  };
  switch (runtime.return_hidden_states) {
    case ReturnHiddenStates::kNone:
      if (got != 0) return refuse(0);
      return {};
    case ReturnHiddenStates::kLast:
      if (got != 1) return refuse(1);
      return {};
    case ReturnHiddenStates::kLastPerDevice:
    case ReturnHiddenStates::kAllNormalized:
    case ReturnHiddenStates::kAll:
      if (got != devices) return refuse(devices);
      return {};
    case ReturnHiddenStates::kSelectedLayers:
      if (got == 0 || got % devices != 0)
        return refuse(fmt::format("{} for each layer, at least one", devices));
      return {};
  }
  return {};
}

// A tree that is filled anew in the memory of its last leaves.
class Refill {
 public:
  explicit Refill(InputTree<InputTensor>& tree) : tree_(tree) {}
  void Add(std::string_view path, const InputTensor& tensor) {
    if (count_ == tree_.leaves.size()) tree_.leaves.emplace_back();
    tree_.leaves[count_].path.assign(path);
    tree_.leaves[count_++].value = tensor;
  }
  void Done() { tree_.leaves.resize(count_); }

 private:
  InputTree<InputTensor>& tree_;
  size_t count_ = 0;
};

Status MapBoundary(const InputTree<InputTensor>& outputs, ModelOutputs& mapped) {
  if (!mapped.stage_boundary.has_value()) mapped.stage_boundary.emplace();
  Refill boundary(*mapped.stage_boundary);
  for (const auto& leaf : outputs.leaves) {
    const std::optional<std::string_view> below = Below(leaf.path, kBoundary);
    if (!below.has_value() || below->empty()) {
      return InvalidInput(
          "{}: got an output, want stage_boundary/... alone before the last stage (process_outputs)",
          leaf.path);
    }
    boundary.Add(*below, leaf.value);
  }
  boundary.Done();
  return {};
}

Status Take(const InputTree<InputTensor>::Leaf& leaf, const OutputNames& names, ModelOutputs& mapped,
            Refill& hidden, Refill& extra) {
  const auto& [path, tensor] = leaf;
  if (path == "next_token_logits") {
    mapped.next_token_logits = tensor;
  } else if (path == "logits") {
    mapped.logits = tensor;
  } else if (path == "logit_offsets") {
    mapped.logit_offsets = tensor;
  } else if (const auto below = Below(path, kHidden); below.has_value()) {
    hidden.Add(*below, tensor);
  } else if (std::ranges::find(names.extra, path, &OutputType::name) != names.extra.end()) {
    extra.Add(path, tensor);
  } else if (Below(path, kBoundary).has_value()) {
    return InvalidInput("{}: got a stage boundary, want none from the last stage (process_outputs)", path);
  } else {
    return InvalidInput("{}: got an output of this name, want one of the contract's (process_outputs)", path);
  }
  return {};
}

// Of outputs whose names make a tree.
Status MapInto(const InputTree<InputTensor>& outputs, const BatchProcessorRuntime& runtime,
               const OutputNames& names, ModelOutputs& mapped) {
  if (!runtime.is_last_stage) return MapBoundary(outputs, mapped);
  mapped.logits.reset();
  mapped.next_token_logits.reset();
  mapped.logit_offsets.reset();
  Refill hidden(mapped.hidden_states), extra(mapped.extra);
  for (const auto& leaf : outputs.leaves) RETURN_IF_ERROR(Take(leaf, names, mapped, hidden, extra));
  hidden.Done();
  extra.Done();
  RETURN_IF_ERROR(CheckLogits(mapped, runtime.return_logits, names.may_omit_logits));
  RETURN_IF_ERROR(names.hidden_states.empty() ? CheckHidden(mapped.hidden_states.leaves.size(), runtime)
                                              : CheckNamedHidden(mapped.hidden_states, names.hidden_states));
  RETURN_IF_ERROR(CheckExtra(mapped.extra, names.extra));
  if (!mapped.logits.has_value()) mapped.logits = mapped.next_token_logits;
  return {};
}

}  // namespace

Result<ModelOutputs> MapOutputs(const InputTree<InputTensor>& outputs, const BatchProcessorRuntime& runtime,
                                const OutputNames& names) {
  RETURN_IF_ERROR(CheckTree(outputs, "process_outputs"));
  ModelOutputs mapped;
  RETURN_IF_ERROR(MapInto(outputs, runtime, names, mapped));
  return mapped;
}

Result<const ModelOutputs*> OutputMapper::Map(const InputTree<InputTensor>& outputs,
                                              const BatchProcessorRuntime& runtime,
                                              const OutputNames& names) {
  const bool known = std::ranges::equal(outputs.leaves, checked_, {}, &InputTree<InputTensor>::Leaf::path);
  if (!known) {
    checked_.clear();
    RETURN_IF_ERROR(CheckTree(outputs, "process_outputs"));
    for (const auto& leaf : outputs.leaves) checked_.push_back(leaf.path);
  }
  RETURN_IF_ERROR(MapInto(outputs, runtime, names, mapped_));
  return &mapped_;
}

Result<ModelOutputs> MapOutputs(std::span<const InputTensor> outputs, const BatchProcessorRuntime& runtime) {
  if (!runtime.is_last_stage) {
    return InvalidInput(
        "outputs: got a tuple, want the tree stage_boundary/... before the last stage "
        "(process_outputs)");
  }
  constexpr const char* kPrefix[] = {"next_token_logits", "logits", "logit_offsets"};
  const size_t prefix = runtime.return_logits == ReturnLogits::kLastToken ? 1 : 3;
  if (outputs.size() < prefix) {
    return InvalidInput("outputs: got {}, want at least {} (process_outputs)", outputs.size(), prefix);
  }
  InputTree<InputTensor> named;
  for (size_t i = 0; i < outputs.size(); ++i) {
    named.Add(i < prefix ? kPrefix[i] : fmt::format("{}/{}", kHidden, i - prefix), outputs[i]);
  }
  return MapOutputs(named, runtime, {});
}

}  // namespace plumbline

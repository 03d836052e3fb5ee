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

Result<ModelOutputs> MapBoundary(const InputTree<InputTensor>& outputs) {
  ModelOutputs mapped;
  mapped.stage_boundary.emplace();
  for (const auto& leaf : outputs.leaves) {
    const std::optional<std::string_view> below = Below(leaf.path, kBoundary);
    if (!below.has_value() || below->empty()) {
      return InvalidInput(
          "{}: got an output, want stage_boundary/... alone before the last stage (process_outputs)",
          leaf.path);
    }
    mapped.stage_boundary->Add(std::string(*below), leaf.value);
  }
  return mapped;
}

Status Take(const InputTree<InputTensor>::Leaf& leaf, const OutputNames& names, ModelOutputs& mapped) {
  const auto& [path, tensor] = leaf;
  if (path == "next_token_logits") {
    mapped.next_token_logits = tensor;
  } else if (path == "logits") {
    mapped.logits = tensor;
  } else if (path == "logit_offsets") {
    mapped.logit_offsets = tensor;
  } else if (const auto below = Below(path, kHidden); below.has_value()) {
    mapped.hidden_states.Add(std::string(*below), tensor);
  } else if (std::any_of(names.extra.begin(), names.extra.end(),
                         [&path = path](const std::string& name) { return Below(path, name).has_value(); })) {
    mapped.extra.Add(path, tensor);
  } else if (Below(path, kBoundary).has_value()) {
    return InvalidInput("{}: got a stage boundary, want none from the last stage (process_outputs)", path);
  } else {
    return InvalidInput("{}: got an output of this name, want one of the contract's (process_outputs)", path);
  }
  return {};
}

}  // namespace

Result<ModelOutputs> MapOutputs(const InputTree<InputTensor>& outputs, const BatchProcessorRuntime& runtime,
                                const OutputNames& names) {
  RETURN_IF_ERROR(CheckTree(outputs, "process_outputs"));
  if (!runtime.is_last_stage) return MapBoundary(outputs);
  ModelOutputs mapped;
  for (const auto& leaf : outputs.leaves) RETURN_IF_ERROR(Take(leaf, names, mapped));
  RETURN_IF_ERROR(CheckLogits(mapped, runtime.return_logits, names.may_omit_logits));
  RETURN_IF_ERROR(CheckHidden(mapped.hidden_states.leaves.size(), runtime));
  if (!mapped.logits.has_value()) mapped.logits = mapped.next_token_logits;
  return mapped;
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

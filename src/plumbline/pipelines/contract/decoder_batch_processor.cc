#include "plumbline/pipelines/contract/decoder_batch_processor.h"

#include <algorithm>
#include <array>

namespace plumbline {
namespace {

Status CheckDescriptors(std::span<const InputDescriptor> descriptors) {
  for (size_t i = 1; i < descriptors.size(); ++i) {
    if (descriptors[i].field <= descriptors[i - 1].field) {
      return InvalidInput(
          "input descriptors: got {} after {}, want the canonical order (decoder batch processor)",
          Name(descriptors[i].field), Name(descriptors[i - 1].field));
    }
  }
  for (const InputDescriptor& descriptor : descriptors) {
    if (descriptor.types.leaves.size() == 1 && descriptor.types.leaves[0].path.empty()) continue;
    RETURN_IF_ERROR(CheckTree(descriptor.types, Name(descriptor.field)));
  }
  return {};
}

// "tokens" and "", "kv" and "replica0/cache_lengths": the leaf's path in a bound tree.
std::string Join(DecoderField field, const std::string& path) {
  std::string joined(Name(field));
  return path.empty() ? joined : joined + "/" + path;
}

// Refuses a tree whose leaves are not those of the descriptors.
Status CheckAgainst(std::span<const InputDescriptor> descriptors, const InputTree<InputSpec>& tree) {
  for (const auto& leaf : tree.leaves) {
    const std::string_view field = std::string_view(leaf.path).substr(0, leaf.path.find('/'));
    const auto described = std::find_if(descriptors.begin(), descriptors.end(),
                                        [field](const auto& d) { return Name(d.field) == field; });
    if (described == descriptors.end()) {
      return InvalidInput("{}: got an input, want none: the decoder does not declare it (bind_input_tree)",
                          field);
    }
  }
  size_t next = 0;
  for (const InputDescriptor& descriptor : descriptors) {
    for (const auto& leaf : descriptor.types.leaves) {
      const std::string path = Join(descriptor.field, leaf.path);
      if (next == tree.leaves.size() || tree.leaves[next].path != path) {
        return InvalidInput("{}: got {}, want the input that the decoder declares (bind_input_tree)", path,
                            next == tree.leaves.size() ? "none" : tree.leaves[next].path);
      }
      if (tree.leaves[next].value != leaf.value) {
        return InvalidInput("{}: got {}, want {} (bind_input_tree)", path, ToString(tree.leaves[next].value),
                            ToString(leaf.value));
      }
      ++next;
    }
  }
  if (next < tree.leaves.size()) {
    return InvalidInput("{}: got an input, want none: the decoder does not declare it (bind_input_tree)",
                        tree.leaves[next].path);
  }
  return {};
}

}  // namespace

DecoderBatchProcessor::DecoderBatchProcessor(const ArchConfig& config, const BatchProcessorRuntime& runtime,
                                             std::vector<InputDescriptor> inputs)
    : config_(config), runtime_(runtime), descriptors_(std::move(inputs)) {}

Result<std::unique_ptr<DecoderBatchProcessor>> DecoderBatchProcessor::Create(
    const ArchConfig& config, const BatchProcessorRuntime& runtime, std::vector<InputDescriptor> inputs) {
  RETURN_IF_ERROR(CheckRuntime(runtime));
  RETURN_IF_ERROR(CheckDescriptors(inputs));
  std::unique_ptr<DecoderBatchProcessor> processor(
      new DecoderBatchProcessor(config, runtime, std::move(inputs)));
  const DeviceRef first = runtime.devices.front();
  const int64_t tokens = runtime.MaxStepTokens(), offsets = runtime.GlobalBatchSize() + 1;
  RETURN_IF_ERROR(processor->buffers_.Declare("tokens", DType::kI64, {tokens}, first));
  RETURN_IF_ERROR(processor->buffers_.Declare("input_row_offsets", DType::kU32, {offsets}, first));
  RETURN_IF_ERROR(processor->buffers_.Declare("return_n_logits", DType::kI64, {1}, DeviceRef::Host()));
  return processor;
}

Status DecoderBatchProcessor::DeclareBuffers() {
  const int64_t tokens = runtime_.MaxStepTokens(), offsets = runtime_.GlobalBatchSize() + 1;
  const DeviceRef host = DeviceRef::Host();
  if (declared_->token_positions.has_value()) {
    RETURN_IF_ERROR(buffers_.Declare("token_positions", DType::kI64, {tokens}, runtime_.devices.front()));
  }
  if (declared_->host_input_row_offsets.has_value()) {
    RETURN_IF_ERROR(buffers_.Declare("host_input_row_offsets", DType::kU32, {offsets}, host));
  }
  if (declared_->data_parallel_splits.has_value()) {
    const int64_t splits = runtime_.data_parallel_degree + 1;
    RETURN_IF_ERROR(buffers_.Declare("data_parallel_splits", DType::kI64, {splits}, host));
  }
  context_length_names_.clear();
  if (!declared_->batch_context_lengths.has_value()) return {};
  for (const InputSpec& spec : *declared_->batch_context_lengths) {
    context_length_names_.push_back(fmt::format("batch_context_lengths/{}", context_length_names_.size()));
    RETURN_IF_ERROR(buffers_.Declare(context_length_names_.back(), spec.dtype, {1}, spec.device));
  }
  return {};
}

Status DecoderBatchProcessor::bind_input_tree(const InputTree<InputSpec>& input_tree) {
  if (!descriptors_.empty()) RETURN_IF_ERROR(CheckAgainst(descriptors_, input_tree));
  ASSIGN_OR_RETURN(DecoderInputs<InputSpec> declared, FromTree(input_tree));
  RETURN_IF_ERROR(CheckDeclaredInputs(declared, config_, runtime_));
  declared_ = std::move(declared);
  step_ = Like<InputTensor>(*declared_);
  state_.clear();
  if (step_.state.has_value()) {
    for (auto& leaf : step_.state->leaves) state_.push_back(&leaf.value);
  }
  limits_known_ = false;
  return DeclareBuffers();
}

InputTree<InputSpec> DecoderBatchProcessor::get_symbolic_inputs(
    const KvCacheParams& kv_params, std::span<const DeviceRef> device_refs) const {
  if (declared_.has_value()) return ToTree(*declared_);
  const DeviceRef first = device_refs.empty() ? DeviceRef::Host() : device_refs.front();
  DecoderInputs<InputSpec> inputs;
  inputs.tokens = {.dtype = DType::kI64, .shape = {"total_seq_len"}, .device = first};
  inputs.input_row_offsets = {.dtype = DType::kU32, .shape = {"input_row_offsets_len"}, .device = first};
  inputs.return_n_logits = {.dtype = DType::kI64, .shape = {"return_n_logits"}};
  if (device_refs.size() > 1) {
    inputs.signals.emplace();
    for (DeviceRef device : device_refs) {
      inputs.signals->push_back({.dtype = DType::kU8,
                                 .shape = {"signal_bytes"},
                                 .device = device,
                                 .residence = Residence::kRankLocal});
    }
  }
  inputs.kv = KvInputTypes(kv_params);
  return ToTree(inputs);
}

std::optional<int64_t> DecoderBatchProcessor::RuntimeMaxDim(std::string_view dim,
                                                            const KvCacheParams& kv_params) const {
  if (dim == "total_seq_len" || dim == "lora_rows" || dim == "vision_rows") return runtime_.MaxStepTokens();
  if (dim == "input_row_offsets_len" || dim == "lora_group_offsets_len")
    return runtime_.GlobalBatchSize() + 1;
  if (dim == "lora_groups") return runtime_.GlobalBatchSize();
  if (dim == "max_num_pages") return kv_params.MaxNumPages(runtime_.max_seq_len);
  if (dim == "return_n_logits") return 1;
  for (int r = 0; r < runtime_.data_parallel_degree; ++r) {
    if (dim == ReplicaBatchDim(r)) return runtime_.max_batch_size;
  }
  return std::nullopt;
}

Result<DimSizes> DecoderBatchProcessor::max_dims(std::span<const std::string> dims,
                                                 const KvCacheParams& kv_params) const {
  DimSizes sizes;
  for (const std::string& dim : dims) {
    std::optional<int64_t> size;
    if (state_store != nullptr) size = state_store->MaxDim(dim);
    if (!size.has_value()) size = RuntimeMaxDim(dim, kv_params);
    if (!size.has_value()) {
      return InvalidInput(
          "dimension {}: got no largest size, want one of the state store or the runtime (max_dims)", dim);
    }
    sizes[dim] = *size;
  }
  return sizes;
}

Status DecoderBatchProcessor::FindLargest() {
  std::set<std::string> names;
  ForEachLeaf(*declared_, [&names](const LeafName&, const InputSpec& spec) {
    if (spec.residence != Residence::kCarried) return;
    for (const Dim& dim : spec.shape) {
      if (dim.is_named()) names.insert(dim.name);
    }
  });
  const std::vector<std::string> dims(names.begin(), names.end());
  ASSIGN_OR_RETURN(largest_, max_dims(dims, runtime_.kv_params));
  limits_known_ = true;
  return {};
}

}  // namespace plumbline

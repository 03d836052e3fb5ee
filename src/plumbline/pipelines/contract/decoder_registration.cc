#include "plumbline/pipelines/contract/decoder_registration.h"

namespace plumbline {
namespace {

InputTree<InputSpec> One(InputSpec spec) { return {{{"", std::move(spec)}}}; }

InputTree<InputSpec> Numbered(const std::vector<InputSpec>& specs) {
  InputTree<InputSpec> tree;
  for (const InputSpec& spec : specs) tree.Add(fmt::to_string(tree.leaves.size()), spec);
  return tree;
}

InputTree<InputSpec> VisionTypes(const DecoderRegistration& registration,
                                 const BatchProcessorRuntime& runtime) {
  InputTree<InputSpec> tree;
  for (size_t d = 0; d < runtime.devices.size(); ++d) {
    tree.Add(fmt::format("embeddings/{}", d), {.dtype = DType::kF32,
                                               .shape = {"vision_rows", registration.vision_hidden},
                                               .device = runtime.devices[d]});
  }
  for (size_t d = 0; d < runtime.devices.size(); ++d) {
    tree.Add(fmt::format("indices/{}", d),
             {.dtype = DType::kI32, .shape = {"vision_rows"}, .device = runtime.devices[d]});
  }
  return tree;
}

std::vector<InputSpec> SignalTypes(const BatchProcessorRuntime& runtime) {
  std::vector<InputSpec> types;
  for (DeviceRef device : runtime.devices) {
    types.push_back({.dtype = DType::kU8,
                     .shape = {"signal_bytes"},
                     .device = device,
                     .residence = Residence::kRankLocal});
  }
  return types;
}

std::vector<InputSpec> ContextLengthTypes(const ArchConfig& config, const BatchProcessorRuntime& runtime) {
  std::vector<InputSpec> types;
  if (config.device_context_length_dtype.has_value()) {
    for (DeviceRef device : runtime.devices) {
      types.push_back({.dtype = *config.device_context_length_dtype, .shape = {1}, .device = device});
    }
  } else {
    types.resize(runtime.data_parallel_degree, {.dtype = DType::kI32, .shape = {1}});
  }
  return types;
}

}  // namespace

InputTree<InputSpec> ScratchTypes(const DecoderRegistration& registration,
                                  std::span<const DeviceRef> devices) {
  InputTree<InputSpec> tree;
  for (size_t d = 0; d < devices.size(); ++d) {
    for (const ScratchType& type : registration.scratch_types) {
      tree.Add(fmt::format("device{}/{}", d, type.name), {.dtype = type.dtype,
                                                          .shape = type.shape,
                                                          .device = devices[d],
                                                          .residence = Residence::kRankLocal});
    }
  }
  return tree;
}

Result<std::vector<InputDescriptor>> DescribeInputs(const DecoderRegistration& registration,
                                                    const ArchConfig& config,
                                                    const BatchProcessorRuntime& runtime) {
  using enum DecoderField;
  RETURN_IF_ERROR(CheckRuntime(runtime));
  const DeviceRef first = runtime.devices.front(), host = DeviceRef::Host();
  const bool parallel = runtime.data_parallel_degree > 1 || registration.takes_host_inputs;
  const bool signals = config.always_signal_buffers || (config.takes_signals && runtime.devices.size() > 1);
  std::vector<InputDescriptor> inputs;
  const auto add = [&inputs](bool present, DecoderField field, InputTree<InputSpec> types) {
    if (present && !types.leaves.empty()) inputs.push_back({.field = field, .types = std::move(types)});
  };
  add(true, kTokens, One({.dtype = DType::kI64, .shape = {"total_seq_len"}, .device = first}));
  add(registration.has_vision, kVision, VisionTypes(registration, runtime));
  add(true, kInputRowOffsets,
      One({.dtype = DType::kU32, .shape = {"input_row_offsets_len"}, .device = first}));
  add(config.takes_token_positions, kTokenPositions,
      One({.dtype = DType::kI64, .shape = {"total_seq_len"}, .device = first}));
  add(parallel, kHostInputRowOffsets,
      One({.dtype = DType::kU32, .shape = {"input_row_offsets_len"}, .device = host}));
  add(true, kReturnNLogits, One({.dtype = DType::kI64, .shape = {"return_n_logits"}, .device = host}));
  add(parallel, kDataParallelSplits,
      One({.dtype = DType::kI64, .shape = {runtime.data_parallel_degree + 1}, .device = host}));
  add(signals, kSignals, Numbered(SignalTypes(runtime)));
  add(true, kKv, KvInputTypes(runtime.kv_params));
  add(config.takes_batch_context_lengths, kBatchContextLengths,
      Numbered(ContextLengthTypes(config, runtime)));
  add(true, kEp, registration.ep);
  add(true, kLora, Numbered(registration.lora));
  add(true, kConstants, registration.constants);
  add(true, kState, registration.state);
  add(true, kScratch, ScratchTypes(registration, runtime.devices));
  add(true, kStageBoundary, registration.stage_boundary);
  return inputs;
}

Result<std::unique_ptr<DecoderBatchProcessor>> MakeDecoderBatchProcessor(
    const DecoderRegistration& registration, const ArchConfig& config, const BatchProcessorRuntime& runtime) {
  ASSIGN_OR_RETURN(std::vector<InputDescriptor> inputs, DescribeInputs(registration, config, runtime));
  InputTree<InputSpec> tree;
  for (const InputDescriptor& input : inputs) {
    for (const auto& leaf : input.types.leaves) {
      const std::string name(Name(input.field));
      tree.Add(leaf.path.empty() ? name : name + "/" + leaf.path, leaf.value);
    }
  }
  ASSIGN_OR_RETURN(auto processor, DecoderBatchProcessor::Create(config, runtime, std::move(inputs)));
  processor->output_names = registration.outputs;
  RETURN_IF_ERROR(processor->bind_input_tree(tree));
  return processor;
}

}  // namespace plumbline

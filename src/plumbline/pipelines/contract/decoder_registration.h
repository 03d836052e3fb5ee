// What a decoder's registration declares, and the batch processor made from it (decoder contract, section 7;
// seeds 001 and 002).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "plumbline/pipelines/contract/decoder_batch_processor.h"

namespace plumbline {

// A leaf that the decoder needs on every device.
struct ScratchType {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<Dim> shape;
};

struct DecoderRegistration {
  std::string name;                // of the architecture
  bool has_vision = false;         // a VISION module is registered beside the DECODER
  int64_t vision_hidden = 0;       // width of its embeddings
  bool takes_host_inputs = false;  // takes host offsets and splits without data parallelism too
  std::vector<ScratchType> scratch_types;
  InputTree<InputSpec> ep;              // rank-local leaves; none: no expert parallelism
  std::vector<InputSpec> lora;          // ids, group offsets, rows, adapters; none: no adapters
  InputTree<InputSpec> constants;       // rank-local leaves
  InputTree<InputSpec> state;           // in the order of its RequestStateStore
  InputTree<InputSpec> stage_boundary;  // rank-local leaves, on a stage after the first
  OutputNames outputs;
};

// "deviceD/NAME" of every scratch type on every device, device after device.
InputTree<InputSpec> ScratchTypes(const DecoderRegistration& registration,
                                  std::span<const DeviceRef> devices);

// The inputs of this decoder in this deployment, in canonical order.
Result<std::vector<InputDescriptor>> DescribeInputs(const DecoderRegistration& registration,
                                                    const ArchConfig& config,
                                                    const BatchProcessorRuntime& runtime);

// A processor with those inputs bound. Constants, scratch, state store and expert exchange are set by who
// owns them, before the first step.
Result<std::unique_ptr<DecoderBatchProcessor>> MakeDecoderBatchProcessor(
    const DecoderRegistration& registration, const ArchConfig& config, const BatchProcessorRuntime& runtime);

}  // namespace plumbline

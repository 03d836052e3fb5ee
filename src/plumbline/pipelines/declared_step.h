// What a decoder's step takes in this deployment: from what the model declares to a batch processor. Every
// rank makes the same declaration, the controller packs by it and the others unpack.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plumbline/nn/decoder_config.h"
#include "plumbline/nn/shard.h"
#include "plumbline/pipelines/contract/decoder_batch_processor.h"
#include "plumbline/pipelines/contract/decoder_registration.h"
#include "plumbline/pipelines/executor_options.h"

namespace plumbline {

struct DeclaredStep {
  BatchProcessorRuntime runtime;
  std::unique_ptr<DecoderBatchProcessor> processor;  // its inputs and outputs bound; state store unset
  int rank = 0;

  // kv_blocks of every (replica, shard), of which this rank has `own`.
  std::vector<InputTensor> KvBlocks(const InputTensor& own) const;
};

struct StepDeclaration {
  const DecoderConfig& config;
  const ParallelDegrees& degrees;
  const ExecutorOptions& options;
  std::span<const int32_t> layers;            // captured
  const InputTree<InputSpec>& state;          // the inputs of the StepState
  std::span<const InputTensor> signals = {};  // RankTensors::signals of the rank that packs
  int rank = 0;
  // The controller's part: what all ranks take. Otherwise what `rank` takes, in its stage, the boundary from
  // the stage before included.
  bool packs = false;
};

Result<DeclaredStep> DeclareStep(const StepDeclaration& declaration);

}  // namespace plumbline

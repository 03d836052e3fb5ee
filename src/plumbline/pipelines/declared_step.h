// What a decoder's step takes in this deployment: from what the model declares to a batch processor. Every
// rank makes the same declaration, the controller packs by it and the others unpack.
#pragma once

#include <memory>
#include <vector>

#include "plumbline/nn/decoder_config.h"
#include "plumbline/nn/shard.h"
#include "plumbline/pipelines/contract/decoder_registration.h"
#include "plumbline/pipelines/rank_executor.h"

namespace plumbline {

struct DeclaredStep {
  BatchProcessorRuntime runtime;
  std::unique_ptr<DecoderBatchProcessor> processor;  // its inputs bound; state store unset
  int rank = 0;

  // kv_blocks of every (replica, shard), of which this rank has `own`.
  std::vector<InputTensor> KvBlocks(const InputTensor& own) const;
  // This rank's scratch at its largest size; empty where the decoder declares none.
  Result<DecoderScratch> AllocateScratch() const;
};

// `state`: the inputs of the StepState.
Result<DeclaredStep> DeclareStep(const DecoderConfig& config, const ParallelDegrees& degrees,
                                 const ExecutorOptions& options, const InputTree<InputSpec>& state, int rank);

}  // namespace plumbline

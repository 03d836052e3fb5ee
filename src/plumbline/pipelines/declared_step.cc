#include "plumbline/pipelines/declared_step.h"

#include <utility>

namespace plumbline {

std::vector<InputTensor> DeclaredStep::KvBlocks(const InputTensor& own) const {
  std::vector<InputTensor> blocks;
  for (const auto& shards : runtime.kv_params.shards) {
    for (DeviceRef shard : shards) {
      blocks.push_back(shard == DeviceRef::Rank(rank)
                           ? own
                           : InputTensor{.dtype = runtime.kv_params.dtype, .device = shard});
    }
  }
  return blocks;
}

Result<DecoderScratch> DeclaredStep::AllocateScratch() const {
  const std::string tokens = "total_seq_len";
  ASSIGN_OR_RETURN(const DimSizes largest, processor->max_dims({&tokens, 1}, runtime.kv_params));
  const DeviceRef own = DeviceRef::Rank(rank);
  return DecoderScratch::Allocate(processor->declared()->scratch.value_or(InputTree<InputSpec>{}), {&own, 1},
                                  largest);
}

Result<DeclaredStep> DeclareStep(const DecoderConfig& config, const ParallelDegrees& degrees,
                                 const ExecutorOptions& options, const InputTree<InputSpec>& state,
                                 int rank) {
  DeclaredStep step{.rank = rank};
  BatchProcessorRuntime& runtime = step.runtime;
  runtime.kv_params.shards.resize(degrees.dp);
  for (int r = 0; r < degrees.Ranks(); ++r) {
    runtime.devices.push_back(DeviceRef::Rank(r));
    runtime.kv_params.shards[CoordinatesOf(degrees, r).replica].push_back(DeviceRef::Rank(r));
  }
  runtime.max_batch_size = options.max_sequences;
  runtime.max_seq_len = options.max_sequence_length;
  runtime.max_batch_input_tokens = options.max_rows;
  runtime.data_parallel_degree = degrees.dp;
  runtime.return_hidden_states = options.hidden_states;
  runtime.kv_params.page_size = options.page_size;
  runtime.kv_params.total_num_pages = options.total_pages;
  runtime.kv_params.page_shape = {"page_bytes"};
  const DecoderDeclaration& declares = config.declares;
  DecoderRegistration registration{.name = config.architecture, .state = state};
  for (const DeclaredScratch& scratch : declares.scratch)
    registration.scratch_types.push_back({scratch.name, scratch.dtype, {"total_seq_len", scratch.per_token}});
  const ArchConfig arch{.vocab = config.vocab,
                        .takes_token_positions = declares.takes_token_positions,
                        .takes_batch_context_lengths = declares.takes_batch_context_lengths,
                        .device_context_length_dtype = declares.device_context_length_dtype,
                        .takes_signals = false};
  ASSIGN_OR_RETURN(step.processor, MakeDecoderBatchProcessor(registration, arch, runtime));
  return step;
}

}  // namespace plumbline

#include "plumbline/pipelines/declared_step.h"

#include <algorithm>
#include <utility>

#include "plumbline/pipelines/contract/decoder_registration.h"
#include "plumbline/pipelines/expert_inputs.h"
#include "plumbline/pipelines/stage_boundary.h"
#include "plumbline/pipelines/step_outputs.h"

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

namespace {

bool Has(const DecoderDeclaration& declares, Role role) {
  return std::ranges::find(declares.roles, role) != declares.roles.end();
}

BatchProcessorRuntime RuntimeOf(const StepDeclaration& declaration) {
  const ParallelDegrees& degrees = declaration.degrees;
  const ExecutorOptions& options = declaration.options;
  BatchProcessorRuntime runtime;
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
  runtime.signal_buffers = {declaration.signals.begin(), declaration.signals.end()};
  runtime.is_last_stage = CoordinatesOf(degrees, declaration.rank).stage == degrees.pp - 1;
  return runtime;
}

DecoderRegistration RegistrationOf(const StepDeclaration& declaration) {
  const DecoderConfig& config = declaration.config;
  const DecoderDeclaration& declares = config.declares;
  const DecoderShard shard = ShardOf(config, declaration.degrees, declaration.rank);
  const int ranks = declaration.degrees.Ranks();
  DecoderRegistration registration{
      .name = config.architecture,
      .has_vision = Has(declares, Role::kVision),
      .vision_hidden = declares.vision_hidden,
      .takes_host_inputs = declares.takes_host_inputs,
      .ep = ExpertInputTypes(config, declaration.degrees, declaration.options.max_rows),
      .state = declaration.state};
  for (const DeclaredScratch& scratch : declares.scratch)
    registration.scratch_types.push_back({scratch.name, scratch.dtype, {"total_seq_len", scratch.per_token}});
  for (int rank = 0; rank < ranks; ++rank) {
    for (const DeclaredConstant& constant : declares.constants) {
      registration.constants.Add(fmt::format("device{}/{}", rank, constant.name),
                                 {.dtype = DType::kF32,
                                  .shape = {constant.shape.begin(), constant.shape.end()},
                                  .device = DeviceRef::Rank(rank),
                                  .residence = Residence::kRankLocal});
    }
  }
  if (!declaration.packs && !shard.FirstStage()) {
    registration.stage_boundary =
        StageBoundaryTypes(StageBoundaryAt(config, shard, declaration.layers, shard.layers.begin),
                           DeviceRef::Rank(declaration.rank));
  }
  registration.outputs = StepOutputNames({.mode = declaration.options.hidden_states,
                                          .layers = {declaration.layers.begin(), declaration.layers.end()},
                                          .replicas = declaration.degrees.dp});
  return registration;
}

}  // namespace

Result<DeclaredStep> DeclareStep(const StepDeclaration& declaration) {
  const DecoderDeclaration& declares = declaration.config.declares;
  if (!Has(declares, Role::kDecoder))
    return InvalidInput("roles: got no decoder, want one ({})", declaration.config.architecture);
  if (declares.signals && declares.signals->bytes < 1) {
    return InvalidInput("signals: got {} bytes, want 1 or more ({})", declares.signals->bytes,
                        declaration.config.architecture);
  }
  const ArchConfig arch{.vocab = declaration.config.vocab,
                        .takes_token_positions = declares.takes_token_positions,
                        .takes_batch_context_lengths = declares.takes_batch_context_lengths,
                        .device_context_length_dtype = declares.device_context_length_dtype,
                        .takes_signals = declares.signals.has_value(),
                        .always_signal_buffers = declares.signals && declares.signals->on_one_rank};
  DeclaredStep step{.runtime = RuntimeOf(declaration), .rank = declaration.rank};
  ASSIGN_OR_RETURN(step.processor,
                   MakeDecoderBatchProcessor(RegistrationOf(declaration), arch, step.runtime));
  return step;
}

}  // namespace plumbline

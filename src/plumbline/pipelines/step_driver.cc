#include "plumbline/pipelines/step_driver.h"

#include <cstring>
#include <utility>

#include "plumbline/pipelines/declared_step.h"

namespace plumbline {
namespace {

void Align(std::vector<std::byte>& bytes) {
  bytes.resize((bytes.size() + kMessageAlignment - 1) / kMessageAlignment * kMessageAlignment);
}

}  // namespace

StepDriver::StepDriver(const Runtime& runtime, const ExecutorOptions& options, std::vector<int32_t> layers)
    : runtime_(runtime), rank_(runtime.rank()), options_(options), layers_(std::move(layers)) {
  options_.layers = std::ssize(layers_);
}

StepDriver::~StepDriver() {
  if (engine_ >= 0) (void)rank_.Command(RankCommand::Kind::kRelease, engine_, {});
}

Status StepDriver::Prepare(const ExecutorOptions& sizes) {
  options_.max_rows = sizes.max_rows;
  options_.max_sequences = sizes.max_sequences;
  options_.max_sequence_length = sizes.max_sequence_length;
  options_.total_pages = sizes.total_pages;
  payload_.resize(sizeof(options_) + layers_.size() * sizeof(int32_t));
  std::memcpy(payload_.data(), &options_, sizeof(options_));
  std::memcpy(payload_.data() + sizeof(options_), layers_.data(), layers_.size() * sizeof(int32_t));
  const bool created = engine_ >= 0;
  if (!created) engine_ = runtime_.NextEngine();
  RETURN_IF_ERROR(
      rank_.Command(created ? RankCommand::Kind::kResize : RankCommand::Kind::kCreate, engine_, payload_));

  const ParallelDegrees& degrees = runtime_.options().degrees;
  state_ = std::make_unique<StepState>(degrees.dp, options_.max_sequences, runtime_.config().declares.state,
                                       degrees.Ranks());
  ASSIGN_OR_RETURN(DeclaredStep step, DeclareStep({.config = runtime_.config(),
                                                   .degrees = degrees,
                                                   .options = options_,
                                                   .layers = layers_,
                                                   .state = state_->state_inputs(),
                                                   .signals = rank_.Tensors(engine_).signals(),
                                                   .rank = 0,
                                                   .packs = true}));
  processor_ = std::move(step.processor);
  RETURN_IF_ERROR(BindInputs(step));
  contexts_.resize(degrees.dp);
  replica_batches_.resize(degrees.dp);
  return {};
}

// What a step has beside the batch.
Status StepDriver::BindInputs(const DeclaredStep& step) {
  const DecoderInputs<InputSpec>& declared = *processor_->declared();
  const RankTensors& tensors = rank_.Tensors(engine_);
  processor_->state_store = state_.get();
  state_->BindPools(tensors.state());
  processor_->constant_inputs = tensors.constants();
  if (declared.scratch) processor_->scratch = &tensors.scratch();
  if (declared.ep) processor_->bind_ep_comm_initializer(&rank_.Experts(engine_));
  std::vector<InputTensor> blocks = step.KvBlocks(rank_.KvBlocks(engine_));
  ASSIGN_OR_RETURN(KvCacheInputBuilder builder, KvCacheInputBuilder::Create(step.runtime, blocks));
  kv_ = std::make_unique<KvCacheInputBuilder>(std::move(builder));
  brought_ = {};
  if (!declared.vision) return {};
  vision_ = {};
  for (const InputSpec& spec : declared.vision->embeddings)
    vision_.embeddings.push_back(
        {.dtype = spec.dtype, .shape = {0, spec.shape[1].size}, .device = spec.device});
  for (const InputSpec& spec : declared.vision->indices)
    vision_.indices.push_back({.dtype = spec.dtype, .shape = {0}, .device = spec.device});
  brought_.vision = &vision_;
  return {};
}

// One packed message of the payload.
Status StepDriver::Pack(const MicroBatch& batch) {
  for (auto& contexts : contexts_) contexts.clear();
  for (const StepEntry& entry : batch.entries) {
    Sequence& sequence = *entry.sequence;
    // Drafts are tokens like others while the step is packed.
    if (entry.kind == RowKind::kSample)
      sequence.result.tokens.insert(sequence.result.tokens.end(), sequence.drafts.begin(),
                                    sequence.drafts.end());
    contexts_[sequence.replica].push_back({.request = sequence.index,
                                           .tokens = sequence.result.tokens,
                                           .processed_length = sequence.processed,
                                           .active_length = entry.rows,
                                           .pages = sequence.pages});
  }
  for (size_t r = 0; r < contexts_.size(); ++r) replica_batches_[r] = contexts_[r];
  state_->Set(batch.entries, batch.copies);
  const Status packed = PackContexts();
  for (const StepEntry& entry : batch.entries) {
    std::vector<int32_t>& tokens = entry.sequence->result.tokens;
    if (entry.kind == RowKind::kSample) tokens.resize(tokens.size() - entry.sequence->drafts.size());
  }
  return packed;
}

Status StepDriver::PackContexts() {
  ASSIGN_OR_RETURN(const KvCacheInputs* kv, kv_->Build(replica_batches_));
  ASSIGN_OR_RETURN(const DecoderInputs<InputTensor>* inputs,
                   processor_->prepare_initial_token_inputs(replica_batches_, kv, 1, brought_));
  return plumbline::Pack(*inputs, *processor_->declared(), message_);
}

Status StepDriver::Run(std::span<const MicroBatch> batches, const Rank::OnOutputs& on_outputs) {
  const int64_t count = std::ssize(batches);
  sizes_.assign(1 + count, 0);
  sizes_[0] = count;
  payload_.resize((1 + count) * sizeof(int64_t));
  for (int64_t i = 0; i < count; ++i) {
    RETURN_IF_ERROR(Pack(batches[i]));
    Align(payload_);
    sizes_[1 + i] = std::ssize(message_);
    payload_.insert(payload_.end(), message_.begin(), message_.end());
  }
  std::memcpy(payload_.data(), sizes_.data(), sizes_.size() * sizeof(int64_t));
  return rank_.Command(RankCommand::Kind::kStep, engine_, payload_, on_outputs);
}

}  // namespace plumbline

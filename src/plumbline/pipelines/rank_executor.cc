#include "plumbline/pipelines/rank_executor.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "plumbline/pipelines/contract/decoder_message.h"
#include "plumbline/pipelines/declared_step.h"
#include "plumbline/pipelines/expert_inputs.h"
#include "plumbline/pipelines/sequence.h"
#include "plumbline/pipelines/step_state.h"

namespace plumbline {
namespace {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();
constexpr int kBoundaryTag = 1;

std::span<const int64_t> StateOf(const DecoderInputs<InputTensor>& inputs, StepStateLeaf leaf) {
  return inputs.state->leaves[static_cast<int>(leaf)].value.As<const int64_t>();
}

size_t IndexOf(const InputTree<InputSpec>& tree, std::string_view path) {
  const auto leaf = std::ranges::find(tree.leaves, path, &InputTree<InputSpec>::Leaf::path);
  PLUMBLINE_CHECK(leaf != tree.leaves.end());
  return leaf - tree.leaves.begin();
}

}  // namespace

RankExecutor::RankExecutor(const RankContext& rank, std::shared_ptr<const Decoder> decoder,
                           std::vector<int32_t> layers, KvPageMemory pages)
    : rank_(rank), decoder_(std::move(decoder)), layers_(std::move(layers)), pages_(std::move(pages)) {}

Result<std::unique_ptr<RankExecutor>> RankExecutor::Create(const RankContext& rank,
                                                           std::shared_ptr<const Decoder> decoder,
                                                           const ExecutorOptions& options,
                                                           std::vector<int32_t> layers) {
  ASSIGN_OR_RETURN(KvPageMemory pages,
                   KvPageMemory::Reserve(decoder->Kv(options.page_size), options.total_pages,
                                         rank.context.rank(), rank.context.size()));
  std::unique_ptr<RankExecutor> executor(
      new RankExecutor(rank, std::move(decoder), std::move(layers), std::move(pages)));
  RETURN_IF_ERROR(executor->Resize(options));
  return executor;
}

InputTensor RankExecutor::KvBlocks() {
  return {.dtype = DType::kU8,
          .shape = {pages_.total_pages(), pages_.layout().PageBytes()},
          .data = pages_.data(),
          .device = DeviceRef::Rank(rank_.world.rank())};
}

Status RankExecutor::Resize(const ExecutorOptions& options) {
  options_ = options;
  ASSIGN_OR_RETURN(workspace_,
                   DecoderWorkspace::Allocate(
                       decoder_->config, decoder_->shard,
                       decoder_->Workspace(options.max_rows, options.max_rows * decoder_->shard.degrees.dp)));
  captured_.clear();
  for (size_t i = 0; i < layers_.size(); ++i) {
    ASSIGN_OR_RETURN(Tensor tensor,
                     Tensor::Allocate(DType::kF32, {options.max_rows, decoder_->config.hidden}));
    captured_.push_back(std::move(tensor));
  }
  const DecoderConfig& config = decoder_->config;
  const DecoderShard& shard = decoder_->shard;
  const StepState state(shard.degrees.dp, options.max_sequences, config.declares.state,
                        shard.degrees.Ranks());
  ASSIGN_OR_RETURN(DeclaredStep step, DeclareStep({.config = config,
                                                   .degrees = shard.degrees,
                                                   .options = options,
                                                   .layers = layers_,
                                                   .state = state.state_inputs(),
                                                   .rank = rank_.world.rank()}));
  RETURN_IF_ERROR(BindInputs(step));
  processor_ = std::move(step.processor);
  const DeviceRef own = DeviceRef::Rank(rank_.world.rank());
  from_stage_before_ = StageBoundary(StageBoundaryAt(config, shard, layers_, shard.layers.begin), own, "");
  to_stage_behind_ =
      StageBoundary(StageBoundaryAt(config, shard, layers_, shard.layers.end), own, "stage_boundary/");
  outputs_ =
      StepOutputs(config, {.mode = options.hidden_states, .layers = layers_, .replicas = shard.degrees.dp});
  return {};
}

// The leaves that are this rank's own.
Status RankExecutor::BindInputs(const DeclaredStep& step) {
  const DecoderInputs<InputSpec>& declared = *step.processor->declared();
  inputs_ = Like<InputTensor>(declared);
  const int replica = rank_.data.rank();
  cache_lengths_leaf_ = IndexOf(declared.kv, fmt::format("replica{}/cache_lengths", replica));
  lookup_table_leaf_ = IndexOf(declared.kv, fmt::format("replica{}/lookup_table", replica));
  size_t next = 0;
  const std::vector<InputTensor> blocks = step.KvBlocks(KvBlocks());
  for (size_t i = 0; i < inputs_.kv.leaves.size(); ++i) {
    if (declared.kv.leaves[i].value.residence == Residence::kRankLocal)
      inputs_.kv.leaves[i].value = blocks[next++];
  }
  ASSIGN_OR_RETURN(tensors_, RankTensors::Make(decoder_, step));
  tensors_.Bind(inputs_);
  if (inputs_.ep) {
    experts_ = BindExpertInputs(*declared.ep, rank_.world.rank(), workspace_.experts);
    *inputs_.ep = experts_.inputs;
  }
  return {};
}

// Views of what the stage before will send. Where the offsets do not say how much, the check refuses them.
Status RankExecutor::BindBoundary() {
  if (!inputs_.stage_boundary) return {};
  const auto offsets = inputs_.input_row_offsets.As<const uint32_t>();
  Range sequences{0, std::ssize(offsets) - 1};
  if (inputs_.data_parallel_splits) {
    const auto splits = inputs_.data_parallel_splits->As<const int64_t>();
    sequences = {splits[rank_.data.rank()], splits[rank_.data.rank() + 1]};
  }
  const bool known =
      sequences.begin >= 0 && sequences.begin <= sequences.end && sequences.end < std::ssize(offsets) &&
      offsets[sequences.begin] <= offsets[sequences.end] && offsets[sequences.end] <= inputs_.tokens.shape[0];
  const int64_t rows = known ? offsets[sequences.end] - offsets[sequences.begin] : 0;
  const bool maxima = StateOf(inputs_, StepStateLeaf::kMaxLogits)[0] != 0;
  RETURN_IF_ERROR(from_stage_before_.SetSizes(rows, known && maxima ? sequences.size() : 0));
  *inputs_.stage_boundary = from_stage_before_.tree();
  return {};
}

Result<const ModelOutputs*> RankExecutor::Execute(std::span<std::byte> message, InputCheck check) {
  const DecoderInputs<InputSpec>& declared = *processor_->declared();
  RETURN_IF_ERROR(Unpack(message, declared, inputs_));
  RETURN_IF_ERROR(BindBoundary());
  if (check == InputCheck::kFull) {
    RETURN_IF_ERROR(CheckDecoderInputs(inputs_, declared,
                                       {.local = DeviceRef::Rank(rank_.world.rank()),
                                        .vocab = decoder_->config.vocab,
                                        .max_seq_len = options_.max_sequence_length,
                                        .total_num_pages = options_.total_pages}));
  }
  RETURN_IF_ERROR(MakeStep(inputs_));
  return Run();
}

// The views and arrays of the step, for this rank's replica.
Status RankExecutor::MakeStep(const DecoderInputs<InputTensor>& inputs) {
  tokens_ = inputs.tokens.As<const int64_t>();
  offsets_ = inputs.input_row_offsets.As<const uint32_t>();
  kind_sequences_ = StateOf(inputs, StepStateLeaf::kKindSequences);
  targets_ = StateOf(inputs, StepStateLeaf::kTargets);
  top_k_ = StateOf(inputs, StepStateLeaf::kTopK)[0];
  wants_max_logits_ = StateOf(inputs, StepStateLeaf::kMaxLogits)[0] != 0;
  whole_batch_.assign({0, std::ssize(offsets_) - 1});
  splits_ = inputs.data_parallel_splits ? inputs.data_parallel_splits->As<const int64_t>() : whole_batch_;
  const int replica = rank_.data.rank();
  own_sequences_ = {splits_[replica], splits_[replica + 1]};
  own_rows_ = {offsets_[own_sequences_.begin], offsets_[own_sequences_.end]};

  replica_rows_.clear();
  for (size_t r = 0; r + 1 < splits_.size(); ++r)
    replica_rows_.push_back(int64_t{offsets_[splits_[r + 1]]} - offsets_[splits_[r]]);

  const auto lengths = inputs.kv.leaves[cache_lengths_leaf_].value.As<const uint32_t>();
  cache_lengths_.assign(lengths.begin(), lengths.end());
  row_offsets_.clear();
  for (int64_t b = own_sequences_.begin; b <= own_sequences_.end; ++b)
    row_offsets_.push_back(static_cast<int32_t>(offsets_[b] - own_rows_.begin));
  positions_.clear();
  for (size_t b = 0; b < cache_lengths_.size(); ++b) {
    for (int32_t i = 0; i < row_offsets_[b + 1] - row_offsets_[b]; ++i)
      positions_.push_back(cache_lengths_[b] + i);
  }
  RETURN_IF_ERROR(FindState(inputs));
  RETURN_IF_ERROR(FindPages(inputs.kv.leaves[lookup_table_leaf_].value));
  CopyPages(StateOf(inputs, StepStateLeaf::kPageCopies));
  return {};
}

// The slots of this replica's sequences; those of requests that begin are zeroed.
Status RankExecutor::FindState(const DecoderInputs<InputTensor>& inputs) {
  own_slots_ = {};
  if (tensors_.slots() == 0) return {};
  constexpr auto kSlots = static_cast<size_t>(StepStateLeaf::kRequestSlots);
  const auto slots = inputs.state->leaves[kSlots].value.As<const uint32_t>();
  if (std::ssize(slots) != std::ssize(offsets_) - 1) {
    return InvalidInput("state/request_slots: got {}, want one for each of {} sequences (decoder inputs)",
                        slots.size(), offsets_.size() - 1);
  }
  own_slots_ = slots.subspan(own_sequences_.begin, own_sequences_.size());
  for (size_t b = 0; b < own_slots_.size(); ++b) {
    if (own_slots_[b] >= tensors_.slots()) {
      return InvalidInput("state/request_slots: got {}, want at most {} (sequence {})", own_slots_[b],
                          tensors_.slots() - 1, b);
    }
    if (cache_lengths_[b] == 0) tensors_.ZeroSlot(own_slots_[b]);
  }
  return {};
}

// Sequences without a page are padding. They come last and stay out of the step's batch: their rows are run,
// but nothing is stored or read for them.
Status RankExecutor::FindPages(const InputTensor& table) {
  const auto ids = table.As<const uint32_t>();
  const int64_t sequences = own_sequences_.size(), width = sequences > 0 ? table.shape[1] : 0;
  page_pointers_.resize(ids.size());
  for (size_t i = 0; i < ids.size(); ++i)
    page_pointers_[i] = ids[i] == kNullPage ? nullptr : pages_.Page(ids[i]);
  sequence_pages_.clear();
  const auto refuse = [&](std::string_view got, std::string_view want, int64_t sequence) {
    return InvalidInput("kv/replica{}/lookup_table: got {}, want {} (sequence {})", rank_.data.rank(), got,
                        want, sequence);
  };
  for (int64_t b = 0; b < sequences; ++b) {
    const int64_t tokens = cache_lengths_[b] + row_offsets_[b + 1] - row_offsets_[b];
    const int64_t needed = (tokens + options_.page_size - 1) / options_.page_size;
    if (needed > width) return refuse("too few pages", "one for every token", b);
    const int64_t missing = std::ranges::count(ids.subspan(b * width, needed), kNullPage);
    if (missing == needed) continue;
    if (missing > 0) return refuse("the null page among others", "pages of its own", b);
    if (b > std::ssize(sequence_pages_)) return refuse("pages after padding", "padding last", b);
    sequence_pages_.push_back(page_pointers_.data() + b * width);
  }
  cache_lengths_.resize(sequence_pages_.size());
  row_offsets_.resize(sequence_pages_.size() + 1);
  return {};
}

void RankExecutor::CopyPages(std::span<const int64_t> copies) {
  for (size_t i = 0; i < copies.size(); i += 3) {
    if (copies[i] != rank_.data.rank()) continue;
    const void* from = pages_.Page(static_cast<uint32_t>(copies[i + 1]));
    void* to = pages_.Page(static_cast<uint32_t>(copies[i + 2]));
    if (from != nullptr) std::memcpy(to, from, pages_.layout().PageBytes());
  }
}

Result<DecoderObservers> RankExecutor::Observe() {
  DecoderObservers observers;
  const DecoderShard& shard = decoder_->shard;
  observers.sequences = own_sequences_.size();
  if (wants_max_logits_) {
    max_logits_.assign(shard.layers.end * own_sequences_.size() * shard.heads.size(), kNegInf);
    observers.max_logits =
        max_logits_.data() + shard.layers.begin * own_sequences_.size() * shard.heads.size();
  }
  captured_views_.clear();
  for (Tensor& tensor : captured_) captured_views_.push_back(tensor.Matrix().Rows(0, own_rows_.size()));
  observers.layers = layers_;
  observers.hidden = captured_views_;
  return observers;
}

Status RankExecutor::ReceiveBoundary() {
  const DecoderShard& shard = decoder_->shard;
  if (shard.FirstStage()) return {};
  RETURN_IF_ERROR(ReceiveTree(rank_.pipeline, *inputs_.stage_boundary, shard.at.stage - 1, kBoundaryTag));
  CopyRows(from_stage_before_.hidden(), workspace_.hidden);
  for (int64_t i = 0; i < from_stage_before_.captured(); ++i)
    CopyRows(from_stage_before_.captured(i), captured_views_[i]);
  std::ranges::copy(from_stage_before_.max_logits(), max_logits_.begin());
  return {};
}

// The stage returns its boundary, and the stage behind gets what process_outputs makes of it.
Result<const ModelOutputs*> RankExecutor::SendBoundary() {
  RETURN_IF_ERROR(to_stage_behind_.SetSizes(own_rows_.size(), wants_max_logits_ ? own_sequences_.size() : 0));
  CopyRows(workspace_.hidden.Rows(0, own_rows_.size()), to_stage_behind_.hidden());
  for (int64_t i = 0; i < to_stage_behind_.captured(); ++i)
    CopyRows(captured_views_[i], to_stage_behind_.captured(i));
  if (wants_max_logits_) std::ranges::copy(max_logits_, to_stage_behind_.max_logits().begin());
  ASSIGN_OR_RETURN(const ModelOutputs* outputs, processor_->process_outputs(to_stage_behind_.tree()));
  RETURN_IF_ERROR(
      SendTree(rank_.pipeline, *outputs->stage_boundary, decoder_->shard.at.stage + 1, kBoundaryTag));
  return outputs;
}

Result<const ModelOutputs*> RankExecutor::Run() {
  ASSIGN_OR_RETURN(const DecoderObservers observers, Observe());
  RETURN_IF_ERROR(ReceiveBoundary());
  const DecoderStep step{
      .tokens = tokens_,
      .own = own_rows_,
      .positions = positions_,
      .batch = {.row_offsets = row_offsets_, .cache_lengths = cache_lengths_, .pages = sequence_pages_},
      .declared = tensors_.Views(own_slots_),
      .replica_rows = replica_rows_};
  RETURN_IF_ERROR(decoder_->Forward(rank_, pages_.layout(), step, observers, workspace_));
  if (!decoder_->shard.LastStage()) return SendBoundary();
  outputs_.Clear();
  for (int kind = 0; kind < kRowKinds; ++kind) RETURN_IF_ERROR(PostprocessKind(kind));
  if (wants_max_logits_) RETURN_IF_ERROR(GatherMaxLogits());
  return processor_->process_outputs(outputs_.tree());
}

// The sequences of one kind, of all replicas, as a batch of their own.
Status RankExecutor::PostprocessKind(int kind) {
  const bool sampled = kind == static_cast<int>(RowKind::kSample),
             scored = kind == static_cast<int>(RowKind::kScore);
  kind_offsets_.assign(1, 0);
  kind_splits_.assign(1, 0);
  kind_targets_.clear();
  int64_t own_first_row = 0, own_row_count = 0;
  for (int replica = 0; replica < rank_.data.size(); ++replica) {
    const int64_t* counts = kind_sequences_.data() + 3 * replica;
    int64_t first = splits_[replica];
    for (int k = 0; k < kind; ++k) first += counts[k];
    const int64_t begin = offsets_[first], end = offsets_[first + counts[kind]];
    for (int64_t b = first; b < first + counts[kind]; ++b) {
      // Every row's logits are wanted of a sampled sequence: each is a batch entry of its own. Where hidden
      // states are wanted there are no drafts, and this changes nothing.
      const uint32_t rows = offsets_[b + 1] - offsets_[b];
      for (uint32_t i = 0; i < (sampled ? rows : 1); ++i)
        kind_offsets_.push_back(kind_offsets_.back() + (sampled ? 1 : rows));
    }
    kind_splits_.push_back(std::ssize(kind_offsets_) - 1);
    if (scored) kind_targets_.insert(kind_targets_.end(), targets_.begin() + begin, targets_.begin() + end);
    if (replica == rank_.data.rank()) {
      own_first_row = begin - own_rows_.begin;
      own_row_count = end - begin;
    }
  }
  const bool hidden_states = options_.hidden_states != ReturnHiddenStates::kNone;
  if (kind_offsets_.size() == 1 || (!sampled && !scored && !hidden_states)) return {};

  captured_rows_.clear();
  for (const MatrixView<float>& view : captured_views_)
    captured_rows_.push_back(view.Rows(own_first_row, own_row_count));
  LogitsPostprocessInputs in{.h = workspace_.hidden.Rows(own_first_row, own_row_count),
                             .input_row_offsets = kind_offsets_,
                             .data_parallel_splits = kind_splits_,
                             .lm_head = &decoder_->head,
                             .norm = &decoder_->final_norm,
                             .return_logits = scored ? ReturnLogits::kAll : ReturnLogits::kLastToken,
                             // The last state of every replica's sequences, not of the first device's alone.
                             .return_hidden_states = options_.hidden_states == ReturnHiddenStates::kLast
                                                         ? ReturnHiddenStates::kLastPerDevice
                                                         : options_.hidden_states,
                             .devices = &rank_.data,
                             .capture_hidden_states = captured_rows_,
                             .project = sampled || scored};
  if (scored) {
    scores_.Begin(rank_, decoder_->config.vocab, kind_targets_, top_k_);
    in.sink = &scores_;
  }
  ASSIGN_OR_RETURN(const LogitsPostprocessOutputs result,
                   distributed_logits_postprocess(rank_, in, postprocess_[kind]));
  if (scored) outputs_.SetScores(scores_);
  if (sampled) outputs_.SetLogits(*result.last_logits);
  outputs_.SetHiddenStates(static_cast<RowKind>(kind), result.hidden_states);
  return {};
}

// [layers, own sequences, own heads] of every rank of the stage, put together; context-parallel ranks have
// the same.
Status RankExecutor::GatherMaxLogits() {
  const DecoderConfig& config = decoder_->config;
  const ParallelDegrees& degrees = decoder_->shard.degrees;
  const int64_t batch = splits_.back();
  if (rank_.stage.size() == 1) {
    outputs_.SetMaxLogits(max_logits_, batch);
    return {};
  }
  std::array<int64_t, kMaxRanks> floats{};
  int64_t total = 0;
  for (int r = 0; r < rank_.stage.size(); ++r) {
    const RankCoordinates at = CoordinatesOf(degrees, r);
    floats[r] = config.layers * (splits_[at.replica + 1] - splits_[at.replica]) *
                HeadsOf(config, degrees.tp, at.tensor).size();
    total += floats[r];
  }
  gathered_max_logits_.resize(total);
  RETURN_IF_ERROR(AllGatherFloats(rank_.stage, max_logits_, std::span(floats).first(rank_.stage.size()),
                                  gathered_max_logits_));
  all_max_logits_.resize(config.layers * batch * config.heads);
  const float* next = gathered_max_logits_.data();
  for (int r = 0; r < rank_.stage.size(); ++r) {
    const RankCoordinates at = CoordinatesOf(degrees, r);
    const Range heads = HeadsOf(config, degrees.tp, at.tensor),
                sequences{splits_[at.replica], splits_[at.replica + 1]};
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      for (int64_t b = sequences.begin; b < sequences.end; ++b, next += heads.size())
        std::copy_n(next, heads.size(),
                    all_max_logits_.data() + (layer * batch + b) * config.heads + heads.begin);
    }
  }
  outputs_.SetMaxLogits(all_max_logits_, batch);
  return {};
}

}  // namespace plumbline

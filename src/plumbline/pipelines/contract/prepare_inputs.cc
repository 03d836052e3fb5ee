#include <algorithm>
#include <limits>

#include "plumbline/pipelines/contract/decoder_batch_processor.h"

namespace plumbline {
namespace {

// Takes leaves that someone else brings, in place. The trees are of one structure.
Status TakeTree(DecoderField field, const InputTree<InputTensor>* brought,
                std::optional<InputTree<InputTensor>>& to) {
  if (brought == nullptr) return to.has_value() ? internal::Missing({.field = field}) : Status();
  if (!to.has_value()) return internal::Undeclared({.field = field});
  RETURN_IF_ERROR(internal::CheckSameTree(field, *brought, *to));
  for (size_t i = 0; i < brought->leaves.size(); ++i) to->leaves[i].value = brought->leaves[i].value;
  return {};
}

Status TakeTuple(const LeafName& name, std::span<const InputTensor> brought, std::vector<InputTensor>& to) {
  if (brought.size() != to.size()) return internal::OtherLeafCount(name, brought.size(), to.size());
  std::copy(brought.begin(), brought.end(), to.begin());
  return {};
}

Status TakeVision(const VisionInputs<InputTensor>* brought, std::optional<VisionInputs<InputTensor>>& to) {
  const LeafName name = {.field = DecoderField::kVision};
  if (brought == nullptr) return to.has_value() ? internal::Missing(name) : Status();
  if (!to.has_value()) return internal::Undeclared(name);
  RETURN_IF_ERROR(TakeTuple({name.field, "embeddings"}, brought->embeddings, to->embeddings));
  return TakeTuple({name.field, "indices"}, brought->indices, to->indices);
}

Status TakeMaybeTuple(const LeafName& name, std::span<const InputTensor> brought,
                      std::optional<std::vector<InputTensor>>& to) {
  if (to.has_value()) return brought.empty() ? internal::Missing(name) : TakeTuple(name, brought, *to);
  return brought.empty() ? Status() : internal::Undeclared(name);
}

}  // namespace

Status DecoderBatchProcessor::CheckContext(const TextContext& context, int64_t return_n_logits,
                                           size_t replica, size_t index) const {
  if (context.active_length < 1) {
    return InvalidInput("active_length: got {}, want at least 1 (replica {}, sequence {})",
                        context.active_length, replica, index);
  }
  if (context.processed_length < 0) {
    return InvalidInput("processed_length: got {}, want 0 or more (replica {}, sequence {})",
                        context.processed_length, replica, index);
  }
  const auto known = static_cast<int64_t>(context.tokens.size());
  // Without overflow: both lengths are 0 or more.
  if (context.processed_length > known || context.active_length > known - context.processed_length) {
    return InvalidInput(
        "active window: got {} + {} tokens, want at most the {} known (replica {}, sequence {})",
        context.processed_length, context.active_length, known, replica, index);
  }
  if (context.current_position() > runtime_.max_seq_len) {
    return InvalidInput("sequence length: got {}, want at most max_seq_len {} (replica {}, sequence {})",
                        context.current_position(), runtime_.max_seq_len, replica, index);
  }
  if (return_n_logits > context.active_length) {
    return InvalidInput(
        "return_n_logits: got {}, want at most the {} active tokens (replica {}, sequence {})",
        return_n_logits, context.active_length, replica, index);
  }
  for (int32_t token : context.active()) {
    if (token < 0 || (config_.vocab != 0 && token >= config_.vocab)) {
      return InvalidInput("tokens: got id {}, want 0 to {} (replica {}, sequence {})", token,
                          config_.vocab != 0 ? config_.vocab - 1 : std::numeric_limits<int32_t>::max(),
                          replica, index);
    }
  }
  return {};
}

Status DecoderBatchProcessor::CheckBatches(std::span<const ReplicaBatch> replica_batches,
                                           int64_t return_n_logits) const {
  if (replica_batches.size() != static_cast<size_t>(runtime_.data_parallel_degree)) {
    return InvalidInput(
        "replica batches: got {}, want {}, one for each data-parallel replica "
        "(prepare_initial_token_inputs)",
        replica_batches.size(), runtime_.data_parallel_degree);
  }
  if (return_n_logits < 1) {
    return InvalidInput("return_n_logits: got {}, want at least 1 (prepare_initial_token_inputs)",
                        return_n_logits);
  }
  int64_t tokens = 0;
  for (size_t r = 0; r < replica_batches.size(); ++r) {
    const ReplicaBatch batch = replica_batches[r];
    if (static_cast<int64_t>(batch.size()) > runtime_.max_batch_size) {
      return InvalidInput("replica batch: got {} sequences, want at most max_batch_size {} (replica {})",
                          batch.size(), runtime_.max_batch_size, r);
    }
    for (size_t i = 0; i < batch.size(); ++i) {
      RETURN_IF_ERROR(CheckContext(batch[i], return_n_logits, r, i));
      tokens += batch[i].active_length;
    }
  }
  if (tokens > runtime_.MaxStepTokens()) {
    return InvalidInput("total_seq_len: got {} tokens, want at most {} (prepare_initial_token_inputs)",
                        tokens, runtime_.MaxStepTokens());
  }
  return {};
}

void DecoderBatchProcessor::Count(std::span<const ReplicaBatch> replica_batches) {
  flat_ = {.replica_batches = replica_batches};
  for (ReplicaBatch batch : replica_batches) {
    flat_.sequences += static_cast<int64_t>(batch.size());
    for (const TextContext& context : batch) flat_.tokens += context.active_length;
  }
}

Status DecoderBatchProcessor::FillTokens(std::span<const ReplicaBatch> replica_batches) {
  ASSIGN_OR_RETURN(step_.tokens, buffers_.View("tokens", {flat_.tokens}));
  ASSIGN_OR_RETURN(step_.input_row_offsets, buffers_.View("input_row_offsets", {flat_.sequences + 1}));
  int64_t* positions = nullptr;
  if (step_.token_positions.has_value()) {
    ASSIGN_OR_RETURN(*step_.token_positions, buffers_.View("token_positions", {flat_.tokens}));
    positions = step_.token_positions->As<int64_t>().data();
  }
  int64_t* tokens = step_.tokens.As<int64_t>().data();
  uint32_t* offsets = step_.input_row_offsets.As<uint32_t>().data();
  *offsets = 0;
  for (ReplicaBatch batch : replica_batches) {
    for (const TextContext& context : batch) {
      const std::span<const int32_t> active = context.active();
      tokens = std::copy(active.begin(), active.end(), tokens);
      for (int64_t k = 0; positions != nullptr && k < context.active_length; ++k) {
        *positions++ = context.processed_length + k;
      }
      offsets[1] = offsets[0] + static_cast<uint32_t>(context.active_length);
      ++offsets;
    }
  }
  flat_.row_offsets = step_.input_row_offsets.As<uint32_t>();
  return {};
}

Status DecoderBatchProcessor::FillHostInputs(std::span<const ReplicaBatch> replica_batches,
                                             int64_t return_n_logits) {
  ASSIGN_OR_RETURN(step_.return_n_logits, buffers_.View("return_n_logits", {1}));
  step_.return_n_logits.As<int64_t>()[0] = return_n_logits;
  if (step_.data_parallel_splits.has_value()) {
    const int64_t splits = runtime_.data_parallel_degree + 1;
    ASSIGN_OR_RETURN(*step_.data_parallel_splits, buffers_.View("data_parallel_splits", {splits}));
    int64_t* split = step_.data_parallel_splits->As<int64_t>().data();
    *split = 0;
    for (ReplicaBatch batch : replica_batches) {
      split[1] = split[0] + static_cast<int64_t>(batch.size());
      ++split;
    }
  }
  if (step_.host_input_row_offsets.has_value()) {
    ASSIGN_OR_RETURN(*step_.host_input_row_offsets,
                     buffers_.View("host_input_row_offsets", {flat_.sequences + 1}));
    std::copy(flat_.row_offsets.begin(), flat_.row_offsets.end(),
              step_.host_input_row_offsets->As<uint32_t>().begin());
  }
  return {};
}

Status DecoderBatchProcessor::FillContextLengths(std::span<const ReplicaBatch> replica_batches) {
  if (!step_.batch_context_lengths.has_value()) return {};
  const KvCacheParams& kv = runtime_.kv_params;
  for (size_t i = 0; i < context_length_names_.size(); ++i) {
    // On devices, one replica's length goes to each of its devices.
    const size_t replica = replica_batches.size() == 1 ? 0 : i;
    int64_t length = 0;
    for (const TextContext& context : replica_batches[replica]) {
      length += kv.PagesFor(context.current_position()) * kv.page_size;
    }
    InputTensor& leaf = (*step_.batch_context_lengths)[i];
    ASSIGN_OR_RETURN(leaf, buffers_.View(context_length_names_[i], {1}));
    if (leaf.dtype == DType::kI64) {
      leaf.As<int64_t>()[0] = length;
      continue;
    }
    if (length > std::numeric_limits<int32_t>::max()) {
      return InvalidInput("batch_context_lengths: got {} tokens, want at most {} (replica {})", length,
                          std::numeric_limits<int32_t>::max(), replica);
    }
    leaf.As<int32_t>()[0] = static_cast<int32_t>(length);
  }
  return {};
}

Status DecoderBatchProcessor::CheckStateStore() const {
  const LeafName name = {.field = DecoderField::kState};
  if (state_store == nullptr) return step_.state.has_value() ? internal::Missing(name) : Status();
  if (!step_.state.has_value()) return internal::Undeclared(name);
  return internal::CheckSameTree(name.field, state_store->state_inputs(), *step_.state);
}

Status DecoderBatchProcessor::FillState(std::span<const ReplicaBatch> replica_batches) {
  if (state_store == nullptr) return {};
  flat_.replica_batches = replica_batches;
  return state_store->Fill(flat_, state_);
}

Status DecoderBatchProcessor::TakeOthers(const KvCacheInputs* kv_cache_inputs, const BroughtInputs& brought) {
  using enum DecoderField;
  if (kv_cache_inputs != nullptr) {
    RETURN_IF_ERROR(internal::CheckSameTree(kKv, kv_cache_inputs->tree, step_.kv));
    for (size_t i = 0; i < step_.kv.leaves.size(); ++i) {
      step_.kv.leaves[i].value = kv_cache_inputs->tree.leaves[i].value;
    }
  } else if (!step_.kv.leaves.empty()) {
    return internal::Missing({.field = kKv});
  }
  if (step_.signals.has_value()) {
    RETURN_IF_ERROR(TakeTuple({.field = kSignals}, runtime_.signal_buffers, *step_.signals));
  }
  RETURN_IF_ERROR(TakeVision(brought.vision, step_.vision));
  RETURN_IF_ERROR(TakeMaybeTuple({.field = kLora}, brought.lora, step_.lora));
  RETURN_IF_ERROR(TakeTree(kEp, ep_ == nullptr ? nullptr : &ep_->inputs, step_.ep));
  RETURN_IF_ERROR(TakeTree(kConstants, constant_inputs == nullptr ? nullptr : &constant_inputs->inputs(),
                           step_.constants));
  RETURN_IF_ERROR(TakeTree(kScratch, scratch == nullptr ? nullptr : &scratch->inputs(), step_.scratch));
  return TakeTree(kStageBoundary, brought.stage_boundary, step_.stage_boundary);
}

Result<const DecoderInputs<InputTensor>*> DecoderBatchProcessor::prepare_initial_token_inputs(
    std::span<const ReplicaBatch> replica_batches, const KvCacheInputs* kv_cache_inputs,
    int64_t return_n_logits, const BroughtInputs& brought) {
  if (!declared_.has_value()) {
    return InvalidInput(
        "decoder inputs: got none bound, want bind_input_tree first (prepare_initial_token_inputs)");
  }
  RETURN_IF_ERROR(CheckBatches(replica_batches, return_n_logits));
  RETURN_IF_ERROR(CheckStateStore());
  if (!limits_known_) RETURN_IF_ERROR(FindLargest());
  RETURN_IF_ERROR(TakeOthers(kv_cache_inputs, brought));
  Count(replica_batches);
  RETURN_IF_ERROR(FillTokens(replica_batches));
  RETURN_IF_ERROR(FillHostInputs(replica_batches, return_n_logits));
  RETURN_IF_ERROR(FillContextLengths(replica_batches));
  RETURN_IF_ERROR(FillState(replica_batches));
  RETURN_IF_ERROR(CheckDecoderInputs(step_, *declared_,
                                     {.largest = &largest_,
                                      .local = runtime_.devices.front(),
                                      .vocab = config_.vocab,
                                      .max_seq_len = runtime_.max_seq_len,
                                      .total_num_pages = runtime_.kv_params.total_num_pages}));
  return &step_;
}

}  // namespace plumbline

#include "plumbline/pipelines/contract/kv_cache_inputs.h"

#include <algorithm>

namespace plumbline {

std::string ReplicaBatchDim(int replica) { return fmt::format("replica{}_batch_size", replica); }

InputTree<InputSpec> KvInputTypes(const KvCacheParams& params) {
  InputTree<InputSpec> types;
  std::vector<Dim> blocks = {Dim(params.total_num_pages)};
  blocks.insert(blocks.end(), params.page_shape.begin(), params.page_shape.end());
  for (size_t r = 0; r < params.shards.size(); ++r) {
    const std::string at = fmt::format("replica{}/", r);
    const std::string batch = ReplicaBatchDim(static_cast<int>(r));
    for (size_t s = 0; s < params.shards[r].size(); ++s) {
      types.Add(fmt::format("{}kv_blocks/{}", at, s), {.dtype = params.dtype,
                                                       .shape = blocks,
                                                       .device = params.shards[r][s],
                                                       .residence = Residence::kRankLocal});
    }
    const DeviceRef first = params.shards[r].front();
    types.Add(at + "cache_lengths", {.dtype = DType::kU32, .shape = {batch}, .device = first});
    types.Add(at + "lookup_table",
              {.dtype = DType::kU32, .shape = {batch, "max_num_pages"}, .device = first});
    types.Add(at + "max_prompt_length", {.dtype = DType::kU32, .shape = {1}});
    types.Add(at + "max_cache_length", {.dtype = DType::kU32, .shape = {1}});
    types.Add(at + "page_stride", {.dtype = DType::kI64, .shape = {1}});
  }
  return types;
}

KvCacheInputBuilder::KvCacheInputBuilder(const BatchProcessorRuntime& runtime)
    : params_(runtime.kv_params),
      max_batch_size_(runtime.max_batch_size),
      max_seq_len_(runtime.max_seq_len) {}

Result<KvCacheInputBuilder> KvCacheInputBuilder::Create(const BatchProcessorRuntime& runtime,
                                                        std::span<const InputTensor> kv_blocks) {
  RETURN_IF_ERROR(CheckRuntime(runtime));
  KvCacheInputBuilder builder(runtime);
  const InputTree<InputSpec> types = KvInputTypes(runtime.kv_params);
  builder.inputs_.tree = types.Like<InputTensor>();
  size_t next = 0, wanted = 0;
  for (const auto& replica : runtime.kv_params.shards) wanted += replica.size();
  if (kv_blocks.size() != wanted) {
    return InvalidInput("kv_blocks: got {} buffers, want {} (KV cache inputs)", kv_blocks.size(), wanted);
  }
  for (size_t i = 0; i < types.leaves.size(); ++i) {
    const InputSpec& spec = types.leaves[i].value;
    if (spec.residence != Residence::kRankLocal) continue;
    const InputTensor& blocks = kv_blocks[next++];
    bool fits = blocks.dtype == spec.dtype && blocks.device == spec.device &&
                (blocks.data == nullptr || blocks.shape.rank() == static_cast<int>(spec.shape.size()));
    for (size_t d = 0; fits && blocks.data != nullptr && d < spec.shape.size(); ++d) {
      fits = spec.shape[d].is_named() || spec.shape[d].size == blocks.shape[static_cast<int>(d)];
    }
    if (!fits) {
      return InvalidInput("kv/{}: got {}, want {} (KV cache inputs)", types.leaves[i].path, ToString(blocks),
                          ToString(spec));
    }
    builder.inputs_.tree.leaves[i].value = blocks;
  }
  const int64_t batch = runtime.max_batch_size;
  const int64_t width = runtime.kv_params.MaxNumPages(runtime.max_seq_len);
  size_t leaf = 0;
  for (const auto& shards : runtime.kv_params.shards) {
    leaf += shards.size();
    Replica replica = {.lengths = types.leaves[leaf].path,
                       .table = types.leaves[leaf + 1].path,
                       .max_prompt = types.leaves[leaf + 2].path,
                       .max_cache = types.leaves[leaf + 3].path,
                       .stride = types.leaves[leaf + 4].path,
                       .first_leaf = leaf};
    RETURN_IF_ERROR(builder.buffers_.Declare(replica.lengths, DType::kU32, {batch}, shards.front()));
    RETURN_IF_ERROR(builder.buffers_.Declare(replica.table, DType::kU32, {batch, width}, shards.front()));
    RETURN_IF_ERROR(builder.buffers_.Declare(replica.max_prompt, DType::kU32, {1}, DeviceRef::Host()));
    RETURN_IF_ERROR(builder.buffers_.Declare(replica.max_cache, DType::kU32, {1}, DeviceRef::Host()));
    RETURN_IF_ERROR(builder.buffers_.Declare(replica.stride, DType::kI64, {1}, DeviceRef::Host()));
    builder.replicas_.push_back(std::move(replica));
    leaf += 5;
  }
  return builder;
}

Status KvCacheInputBuilder::CheckPages(const TextContext& context, size_t replica, size_t index) const {
  if (context.processed_length < 0 || context.active_length < 1 ||
      context.current_position() > max_seq_len_) {
    return InvalidInput(
        "sequence length: got {} + {} tokens, want at least 0 + 1 and at most {} in all (replica {}, "
        "sequence {})",
        context.processed_length, context.active_length, max_seq_len_, replica, index);
  }
  const int64_t needed = params_.PagesFor(context.current_position());
  if (static_cast<int64_t>(context.pages.size()) < needed) {
    return InvalidInput("KV pages: got {}, want {} for {} tokens (replica {}, sequence {})",
                        context.pages.size(), needed, context.current_position(), replica, index);
  }
  for (uint32_t page : context.pages.first(needed)) {
    if (page >= params_.total_num_pages) {
      return InvalidInput("KV page: got id {}, want at most {} (replica {}, sequence {})", page,
                          params_.total_num_pages - 1, replica, index);
    }
    if (page == kNullPage && !context.is_padding) {
      return InvalidInput("KV page: got the null page 0, want 1 or above (replica {}, sequence {})", replica,
                          index);
    }
  }
  return {};
}

Status KvCacheInputBuilder::Check(std::span<const ReplicaBatch> replica_batches) const {
  if (replica_batches.size() != replicas_.size()) {
    return InvalidInput(
        "replica batches: got {}, want {}, one for each data-parallel replica (KV cache inputs)",
        replica_batches.size(), replicas_.size());
  }
  for (size_t r = 0; r < replica_batches.size(); ++r) {
    if (static_cast<int64_t>(replica_batches[r].size()) > max_batch_size_) {
      return InvalidInput("replica batch: got {} sequences, want at most {} (replica {})",
                          replica_batches[r].size(), max_batch_size_, r);
    }
    for (size_t i = 0; i < replica_batches[r].size(); ++i) {
      RETURN_IF_ERROR(CheckPages(replica_batches[r][i], r, i));
    }
  }
  return {};
}

Status KvCacheInputBuilder::Fill(size_t replica, ReplicaBatch batch, int64_t width) {
  const Replica& names = replicas_[replica];
  const auto sequences = static_cast<int64_t>(batch.size());
  auto* leaf = &inputs_.tree.leaves[names.first_leaf];
  ASSIGN_OR_RETURN(leaf[0].value, buffers_.View(names.lengths, {sequences}));
  ASSIGN_OR_RETURN(leaf[1].value, buffers_.View(names.table, {sequences, width}));
  ASSIGN_OR_RETURN(leaf[2].value, buffers_.View(names.max_prompt, {1}));
  ASSIGN_OR_RETURN(leaf[3].value, buffers_.View(names.max_cache, {1}));
  ASSIGN_OR_RETURN(leaf[4].value, buffers_.View(names.stride, {1}));
  const std::span<uint32_t> lengths = leaf[0].value.As<uint32_t>();
  uint32_t* row = leaf[1].value.As<uint32_t>().data();
  int64_t longest_prompt = 0, longest_cache = 0;
  for (int64_t i = 0; i < sequences; ++i, row += width) {
    const TextContext& context = batch[i];
    lengths[i] = static_cast<uint32_t>(context.processed_length);
    longest_prompt = std::max(longest_prompt, context.active_length);
    longest_cache = std::max(longest_cache, context.processed_length);
    const int64_t pages = params_.PagesFor(context.current_position());
    std::copy_n(context.pages.begin(), pages, row);
    std::fill(row + pages, row + width, kNullPage);
  }
  leaf[2].value.As<uint32_t>()[0] = static_cast<uint32_t>(longest_prompt);
  leaf[3].value.As<uint32_t>()[0] = static_cast<uint32_t>(longest_cache);
  leaf[4].value.As<int64_t>()[0] = params_.page_stride;
  return {};
}

Result<const KvCacheInputs*> KvCacheInputBuilder::Build(std::span<const ReplicaBatch> replica_batches) {
  RETURN_IF_ERROR(Check(replica_batches));
  int64_t width = 1;
  for (ReplicaBatch batch : replica_batches) {
    for (const TextContext& context : batch)
      width = std::max(width, params_.PagesFor(context.current_position()));
  }
  width += params_.lookup_padding;
  for (size_t r = 0; r < replica_batches.size(); ++r) RETURN_IF_ERROR(Fill(r, replica_batches[r], width));
  return &inputs_;
}

}  // namespace plumbline

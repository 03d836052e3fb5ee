// The KV cache's inputs of a step, made from the requests' page ids (decoder contract, section 6.1).
#pragma once

#include <span>
#include <vector>

#include "plumbline/pipelines/contract/batch_processor_runtime.h"
#include "plumbline/pipelines/contract/declared_buffers.h"
#include "plumbline/pipelines/contract/text_context.h"

namespace plumbline {

// The tree of KvInputTypes.
struct KvCacheInputs {
  InputTree<InputTensor> tree;
};

class KvCacheInputBuilder {
 public:
  // `kv_blocks`: one for each (replica, shard), replica-major; those of other ranks have no data. Refuses
  // another number of them, and another dtype, shape or device than the parameters say.
  static Result<KvCacheInputBuilder> Create(const BatchProcessorRuntime& runtime,
                                            std::span<const InputTensor> kv_blocks);

  // Views of this builder's buffers, until the next call; allocates nothing after the first. A row of the
  // lookup table holds the pages that the sequence needs after this step, then null pages, as wide as the
  // step's longest sequence needs (at least 1) plus the padding.
  //
  // Refuses another number of replicas, too many sequences, sequences beyond max_seq_len, with too few pages,
  // with a page id out of range, and the null page where the context is no padding.
  Result<const KvCacheInputs*> Build(std::span<const ReplicaBatch> replica_batches);

 private:
  explicit KvCacheInputBuilder(const BatchProcessorRuntime& runtime);
  Status Check(std::span<const ReplicaBatch> replica_batches) const;
  Status CheckPages(const TextContext& context, size_t replica, size_t index) const;
  Status Fill(size_t replica, ReplicaBatch batch, int64_t width);

  KvCacheParams params_;
  int64_t max_batch_size_;
  int64_t max_seq_len_;
  DeclaredBuffers buffers_;
  struct Replica {  // names of its buffers, and where its leaves begin
    std::string lengths, table, max_prompt, max_cache, stride;
    size_t first_leaf = 0;
  };
  std::vector<Replica> replicas_;
  KvCacheInputs inputs_;
};

}  // namespace plumbline

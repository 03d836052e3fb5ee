// Attention over KV pages that the context-parallel ranks share out: page i of every sequence lies on rank i
// mod cp. Each rank attends over its own pages, the nodes of the softmax's tree are gathered, and every rank
// finishes it: the bits of one rank.
#pragma once

#include <vector>

#include "plumbline/kernels/attention/attention.h"
#include "plumbline/kernels/attention/attention_shard_plan.h"
#include "plumbline/nn/rank_context.h"
#include "plumbline/tensor/grow_buffer.h"

namespace plumbline {

// What gathered nodes may take: where a step's would pass it, its rows run in slabs, of kMinSlabRows rows or
// more. Bits do not depend on it.
inline constexpr int64_t kGatheredFloats = int64_t{4} << 20;
inline constexpr int64_t kMinSlabRows = 16;

// Reused from step to step; grows to the largest size it has held.
struct ContextAttentionScratch {
  int64_t max_gathered_floats = kGatheredFloats;
  AttentionShardPlan plan;
  GrowBuffer partials, gathered;
  std::vector<int32_t> row_offsets, cache_lengths;
  std::vector<void* const*> pages;
};

// As Attention, for the `heads` query heads of this rank, after StoreKv.
Status ContextAttention(const RankContext& rank, const KvLayout& kv, const PagedBatch& batch, int64_t layer,
                        int64_t heads, MatrixView<const float> q, const AttentionOptions& options,
                        ContextAttentionScratch& scratch, MatrixView<float> out);

}  // namespace plumbline

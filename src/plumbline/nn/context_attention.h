// Attention over KV pages that the context-parallel ranks share out: page i of every sequence lies on rank i
// mod cp. Each rank attends over its own pages, the nodes of the softmax's tree are gathered, and every rank
// finishes it: the bits of one rank.
#pragma once

#include <memory>
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

// Rows [begin, ...) of a step as a batch of their own, and how attention over it is cut: the same in all
// layers of a window.
struct ContextAttentionSlab {
  int64_t begin = 0;
  int64_t window = 0;
  int64_t first = 0;  // its first sequence among the step's
  std::vector<int32_t> row_offsets, cache_lengths;
  std::vector<void* const*> pages;
  AttentionShardPlan plan;

  int64_t rows() const { return row_offsets.back(); }
  PagedBatch Batch() const {
    return {.row_offsets = row_offsets, .cache_lengths = cache_lengths, .pages = pages};
  }
};

// Reused from step to step; grows to the largest size it has held.
struct ContextAttentionScratch {
  int64_t max_gathered_floats = kGatheredFloats;
  GrowBuffer partials, gathered;
  // The first `made` are of this step.
  std::vector<std::unique_ptr<ContextAttentionSlab>> slabs;
  size_t made = 0;
  int64_t slab_rows = 0;   // of this step; 0: not known yet
  int64_t plans_made = 0;  // since the beginning

  // Before the first layer of a step: nothing is known of its batch.
  void BeginStep() { made = 0, slab_rows = 0; }
};

// As Attention, for the `heads` query heads of this rank, after StoreKv. Between two calls of BeginStep the
// batch is the same but for its pages' contents.
Status ContextAttention(const RankContext& rank, const KvLayout& kv, const PagedBatch& batch, int64_t layer,
                        int64_t heads, MatrixView<const float> q, const AttentionOptions& options,
                        ContextAttentionScratch& scratch, MatrixView<float> out);

}  // namespace plumbline

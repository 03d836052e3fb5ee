// Attention over KV pages that are spread over ranks (context parallel decoding; numerics contract, sections
// 2 and 4), in two halves with an all-gather of floats between them. Page i of every sequence lies on rank
// i % ranks, whose `pages` has null for all others; queries, offsets and lengths are the same on all ranks.
//
//   every rank:  MakeAttentionShardPlan, StoreKv (which skips null pages), AttentionPartials
//   all-gather:  partials of plan.RankFloats(r) floats from rank r, concatenated in rank order
//   every rank:  AttentionFromPartials
//
// The result is Attention's with all pages present, bit for bit, whatever the number of ranks: a page holds
// whole nodes of the dyadic tree over key blocks, and only nodes travel. A rank that owns no key of a row
// sends nothing for it. The plan does not depend on the layer, but for its window.
//
// The node of r rows (query heads of a KV head x positions) weighs r * (head_dim + 2) * 4 bytes, what r keys
// and values do in bf16: where r exceeds the keys of a chunk, as in prefill, pages are lighter to gather.
#pragma once

#include <cstdint>
#include <span>

#include "plumbline/kernels/attention/attention.h"
#include "plumbline/kernels/attention/attention_shard_plan.h"

namespace plumbline {

// q [tokens, heads * head_dim] after rotary. Writes the nodes of the keys that `rank` owns to
// partials [plan.RankFloats(rank)] (may be longer; the rest, like the padding of a node, holds anything
// afterwards). Of `options` scale, window (the plan's) and softcap count. This step's keys are already
// stored.
void AttentionPartials(const KernelContext& context, const KvLayout& layout, const PagedBatch& batch,
                       const AttentionShardPlan& plan, int rank, int64_t layer, MatrixView<const float> q,
                       const AttentionOptions& options, std::span<float> partials);

// partials [plan.rank_offsets.back()] (may be longer): all ranks', in rank order; overwritten. Finishes out
// [tokens, heads * head_dim] and options.max_logit as Attention does; of `options` sinks and max_logit count.
void AttentionFromPartials(const KernelContext& context, const AttentionShardPlan& plan,
                           const AttentionOptions& options, std::span<float> partials, MatrixView<float> out);

}  // namespace plumbline

#include "plumbline/nn/context_attention.h"

#include <algorithm>
#include <array>

#include "plumbline/kernels/attention/attention_shards.h"

namespace plumbline {
namespace {

// Rows that one slab may have. A function of the batch alone: every rank cuts alike.
int64_t SlabRows(const KvLayout& kv, const PagedBatch& batch, int64_t heads, int ranks, int64_t max_floats) {
  int64_t longest = 0;
  for (size_t b = 0; b < batch.cache_lengths.size(); ++b) {
    longest =
        std::max<int64_t>(longest, batch.cache_lengths[b] + batch.row_offsets[b + 1] - batch.row_offsets[b]);
  }
  int64_t rows = batch.row_offsets.back();
  while (rows > kMinSlabRows &&
         ranks * AttentionShardFloats(kv, heads, ranks, {.tokens = rows, .context = longest}) > max_floats) {
    rows = (rows + 1) / 2;
  }
  return rows;
}

// Rows [begin, end) of `batch` as a batch of their own.
void CutBatch(const PagedBatch& batch, int64_t begin, int64_t end, ContextAttentionSlab& slab) {
  slab.row_offsets.assign(1, 0);
  slab.cache_lengths.clear();
  slab.pages.clear();
  slab.first = -1;
  for (int64_t b = 0; b < std::ssize(batch.cache_lengths); ++b) {
    const int64_t from = std::max<int64_t>(begin, batch.row_offsets[b]),
                  to = std::min<int64_t>(end, batch.row_offsets[b + 1]);
    if (from >= to) continue;
    if (slab.first < 0) slab.first = b;
    slab.row_offsets.push_back(static_cast<int32_t>(slab.row_offsets.back() + to - from));
    slab.cache_lengths.push_back(static_cast<int32_t>(batch.cache_lengths[b] + from - batch.row_offsets[b]));
    slab.pages.push_back(batch.pages[b]);
  }
}

// The slab that begins with row `begin`, made in the first layer of the step that asks for it.
const ContextAttentionSlab& SlabAt(const KvLayout& kv, const PagedBatch& batch, int64_t heads, int ranks,
                                   int64_t begin, int64_t window, ContextAttentionScratch& scratch) {
  for (size_t i = 0; i < scratch.made; ++i) {
    const ContextAttentionSlab& slab = *scratch.slabs[i];
    if (slab.begin == begin && slab.window == window) return slab;
  }
  if (scratch.made == scratch.slabs.size()) scratch.slabs.push_back(std::make_unique<ContextAttentionSlab>());
  ContextAttentionSlab& slab = *scratch.slabs[scratch.made++];
  slab.begin = begin;
  slab.window = window;
  const int64_t end = std::min<int64_t>(begin + scratch.slab_rows, batch.row_offsets.back());
  CutBatch(batch, begin, end, slab);
  MakeAttentionShardPlan(kv, slab.Batch(), heads, window, ranks, &slab.plan);
  ++scratch.plans_made;
  return slab;
}

Status RunSlab(const RankContext& rank, const KvLayout& kv, const ContextAttentionSlab& slab, int64_t layer,
               MatrixView<const float> q, const AttentionOptions& options, ContextAttentionScratch& scratch,
               MatrixView<float> out) {
  const int ranks = rank.context.size(), own = rank.context.rank();
  std::array<int64_t, kMaxRanks> floats;
  for (int r = 0; r < ranks; ++r) floats[r] = slab.plan.RankFloats(r);
  ASSIGN_OR_RETURN(const std::span<float> mine, scratch.partials.Get<float>(floats[own]));
  ASSIGN_OR_RETURN(const std::span<float> all, scratch.gathered.Get<float>(slab.plan.rank_offsets.back()));
  AttentionPartials(rank.kernel, kv, slab.Batch(), slab.plan, own, layer, q, options, mine);
  RETURN_IF_ERROR(AllGatherFloats(rank.context, mine, std::span(floats).first(ranks), all));
  AttentionFromPartials(rank.kernel, slab.plan, options, all, out);
  return {};
}

}  // namespace

Status ContextAttention(const RankContext& rank, const KvLayout& kv, const PagedBatch& batch, int64_t layer,
                        int64_t heads, MatrixView<const float> q, const AttentionOptions& options,
                        ContextAttentionScratch& scratch, MatrixView<float> out) {
  const int ranks = rank.context.size();
  if (ranks == 1) {
    Attention(rank.kernel, kv, batch, layer, heads, q, options, out);
    return {};
  }
  if (scratch.slab_rows == 0)
    scratch.slab_rows = SlabRows(kv, batch, heads, ranks, scratch.max_gathered_floats);
  for (int64_t begin = 0; begin < q.rows;) {
    const ContextAttentionSlab& slab = SlabAt(kv, batch, heads, ranks, begin, options.window, scratch);
    AttentionOptions part = options;
    if (part.max_logit != nullptr) part.max_logit += slab.first * heads;
    RETURN_IF_ERROR(RunSlab(rank, kv, slab, layer, q.Rows(begin, slab.rows()), part, scratch,
                            out.Rows(begin, slab.rows())));
    begin += slab.rows();
  }
  return {};
}

}  // namespace plumbline

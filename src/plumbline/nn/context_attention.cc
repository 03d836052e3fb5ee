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

// Rows [begin, end) of `batch` as a batch of their own. Returns its first sequence.
int64_t CutBatch(const PagedBatch& batch, int64_t begin, int64_t end, ContextAttentionScratch& scratch) {
  scratch.row_offsets.assign(1, 0);
  scratch.cache_lengths.clear();
  scratch.pages.clear();
  int64_t first = -1;
  for (int64_t b = 0; b < std::ssize(batch.cache_lengths); ++b) {
    const int64_t from = std::max<int64_t>(begin, batch.row_offsets[b]),
                  to = std::min<int64_t>(end, batch.row_offsets[b + 1]);
    if (from >= to) continue;
    if (first < 0) first = b;
    scratch.row_offsets.push_back(static_cast<int32_t>(scratch.row_offsets.back() + to - from));
    scratch.cache_lengths.push_back(
        static_cast<int32_t>(batch.cache_lengths[b] + from - batch.row_offsets[b]));
    scratch.pages.push_back(batch.pages[b]);
  }
  return first;
}

Status Slab(const RankContext& rank, const KvLayout& kv, const PagedBatch& batch, int64_t layer,
            int64_t heads, MatrixView<const float> q, const AttentionOptions& options,
            ContextAttentionScratch& scratch, MatrixView<float> out) {
  const int ranks = rank.context.size();
  MakeAttentionShardPlan(kv, batch, heads, options.window, ranks, &scratch.plan);
  std::array<int64_t, kMaxRanks> floats;
  for (int r = 0; r < ranks; ++r) floats[r] = scratch.plan.RankFloats(r);
  ASSIGN_OR_RETURN(const std::span<float> mine, scratch.partials.Get<float>(floats[rank.context.rank()]));
  ASSIGN_OR_RETURN(const std::span<float> all, scratch.gathered.Get<float>(scratch.plan.rank_offsets.back()));
  AttentionPartials(rank.kernel, kv, batch, scratch.plan, rank.context.rank(), layer, q, options, mine);
  RETURN_IF_ERROR(AllGatherFloats(rank.context, mine, std::span(floats).first(ranks), all));
  AttentionFromPartials(rank.kernel, scratch.plan, options, all, out);
  return {};
}

}  // namespace

Status ContextAttention(const RankContext& rank, const KvLayout& kv, const PagedBatch& batch, int64_t layer,
                        int64_t heads, MatrixView<const float> q, const AttentionOptions& options,
                        ContextAttentionScratch& scratch, MatrixView<float> out) {
  if (rank.context.size() == 1) {
    Attention(rank.kernel, kv, batch, layer, heads, q, options, out);
    return {};
  }
  const int64_t slab = SlabRows(kv, batch, heads, rank.context.size(), scratch.max_gathered_floats);
  for (int64_t begin = 0; begin < q.rows; begin += slab) {
    const int64_t rows = std::min(slab, q.rows - begin);
    const int64_t first = CutBatch(batch, begin, begin + rows, scratch);
    AttentionOptions part = options;
    if (part.max_logit != nullptr) part.max_logit += first * heads;
    const PagedBatch cut{
        .row_offsets = scratch.row_offsets, .cache_lengths = scratch.cache_lengths, .pages = scratch.pages};
    RETURN_IF_ERROR(
        Slab(rank, kv, cut, layer, heads, q.Rows(begin, rows), part, scratch, out.Rows(begin, rows)));
  }
  return {};
}

}  // namespace plumbline

#include "plumbline/kernels/attention/attention_shard_plan.h"

#include <algorithm>

#include "plumbline/base/check.h"
#include "plumbline/kernels/attention/attention_kernels.h"

namespace plumbline {
namespace {

int64_t ChunkBlocks(const KvLayout& layout) {
  const int64_t blocks = layout.BlocksPerPage();
  return blocks & -blocks;
}

// Of a sequence as long as `limits` allow, how many chunks one rank owns at most.
int64_t MostChunks(const KvLayout& layout, int ranks, const AttentionShardLimits& limits) {
  const int64_t pages = (limits.context + layout.page_size - 1) / layout.page_size;
  return (pages + ranks - 1) / ranks * (layout.BlocksPerPage() / ChunkBlocks(layout));
}

}  // namespace

void MakeAttentionShardPlan(const KvLayout& layout, const PagedBatch& batch, int64_t heads, int64_t window,
                            int ranks, AttentionShardPlan* plan) {
  PLUMBLINE_CHECK(layout.page_size > 0 && layout.page_size % kKeyBlock == 0);
  PLUMBLINE_CHECK(ranks >= 1 && heads > 0 && heads % layout.kv_heads == 0 && window >= 0);
  PLUMBLINE_CHECK(batch.row_offsets.size() == batch.cache_lengths.size() + 1);
  plan->ranks = ranks;
  plan->kv_heads = layout.kv_heads;
  plan->group = heads / layout.kv_heads;
  plan->head_dim = layout.head_dim;
  plan->window = window;
  const int64_t chunk = plan->chunk_blocks = ChunkBlocks(layout);
  plan->max_positions = 0;
  plan->pieces.clear();
  plan->owned.resize(ranks);
  for (std::vector<int64_t>& owned : plan->owned) owned.clear();
  plan->rank_offsets.assign(ranks + 1, 0);
  CutAttentionTiles(batch, plan->group, window, &plan->tiles);

  for (size_t t = 0; t < plan->tiles.size(); ++t) {
    AttentionTile& tile = plan->tiles[t];
    const int64_t floats =
        layout.kv_heads * AttentionNodeFloats(tile.positions * plan->group, layout.head_dim);
    plan->max_positions = std::max(plan->max_positions, tile.positions);
    tile.first_piece = std::ssize(plan->pieces);
    for (int64_t begin = tile.first_block; begin < tile.end_block;) {
      const int64_t end = std::min(tile.end_block, (begin / chunk + 1) * chunk);
      const auto rank = static_cast<int32_t>(begin / layout.BlocksPerPage() % ranks);
      int64_t& used = plan->rank_offsets[rank + 1];
      plan->owned[rank].push_back(std::ssize(plan->pieces));
      plan->pieces.push_back({.tile = static_cast<int64_t>(t),
                              .first_block = begin,
                              .end_block = end,
                              .rank = rank,
                              .offset = used});
      used += floats;
      begin = end;
    }
    tile.pieces = std::ssize(plan->pieces) - tile.first_piece;
  }
  for (int rank = 0; rank < ranks; ++rank) plan->rank_offsets[rank + 1] += plan->rank_offsets[rank];
}

int64_t AttentionShardFloats(const KvLayout& layout, int64_t heads, int ranks,
                             const AttentionShardLimits& limits) {
  // One tile for every row pads most: 15 values each of m and l.
  const int64_t group = heads / layout.kv_heads;
  const int64_t row = group * (2 + RoundUp16(layout.head_dim)) + 30;
  return limits.tokens * row * layout.kv_heads * MostChunks(layout, ranks, limits);
}

void ReserveAttentionShardPlan(const KvLayout& layout, int ranks, const AttentionShardLimits& limits,
                               AttentionShardPlan* plan) {
  const int64_t pieces = limits.tokens * MostChunks(layout, ranks, limits);
  plan->tiles.reserve(limits.tokens);
  plan->pieces.reserve(pieces * ranks);
  plan->owned.resize(ranks);
  for (std::vector<int64_t>& owned : plan->owned) owned.reserve(pieces);
  plan->rank_offsets.reserve(ranks + 1);
}

}  // namespace plumbline

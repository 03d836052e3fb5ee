#include "plumbline/kernels/attention/attention_plan.h"

#include <algorithm>
#include <bit>

namespace plumbline {
namespace {

constexpr int64_t kTileRows =
    48;  // 48 rows x 64 keys of scores reuse a block that fits the first-level cache
constexpr int64_t kMinChunkBlocks = 4;  // below this a chunk costs less than handing it out
constexpr int64_t kPiecesPerThread = 4;

}  // namespace

int64_t AttentionTilePositions(int64_t group) {
  const auto fitting = static_cast<uint64_t>(std::max<int64_t>(1, kTileRows / group));
  return std::min<int64_t>(kKeyBlock, static_cast<int64_t>(std::bit_floor(fitting)));
}

int64_t AttentionChunkBlocks(int64_t total_blocks, int threads) {
  if (threads == 1) return int64_t{1} << 40;
  const int64_t share = total_blocks / (threads * kPiecesPerThread);
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(share, kMinChunkBlocks))));
}

void CutAttentionTiles(const PagedBatch& batch, int64_t group, int64_t window,
                       std::vector<AttentionTile>* tiles) {
  const int64_t tile_positions = AttentionTilePositions(group);
  tiles->clear();
  for (size_t b = 0; b + 1 < batch.row_offsets.size(); ++b) {
    const int64_t begin = batch.cache_lengths[b];
    const int64_t end = begin + batch.row_offsets[b + 1] - batch.row_offsets[b];
    for (int64_t position = begin; position < end;) {
      const int64_t next = std::min(end, (position / tile_positions + 1) * tile_positions);
      const int64_t first_key = window > 0 ? std::max<int64_t>(0, position - window + 1) : 0;
      tiles->push_back({.sequence = static_cast<int32_t>(b),
                        .first_row = batch.row_offsets[b] + position - begin,
                        .positions = next - position,
                        .first_position = position,
                        .first_block = first_key / kKeyBlock,
                        .end_block = position / kKeyBlock + 1});
      position = next;
    }
  }
}

void MakeAttentionPlan(const PagedBatch& batch, int64_t kv_heads, int64_t group, int64_t window, int threads,
                       AttentionPlan* plan) {
  CutAttentionTiles(batch, group, window, &plan->tiles);
  int64_t total = 0;
  for (const AttentionTile& tile : plan->tiles) total += (tile.end_block - tile.first_block) * kv_heads;
  const int64_t chunk = plan->chunk_blocks = AttentionChunkBlocks(total, threads);

  plan->pieces.clear();
  plan->merged_pieces = plan->max_positions = plan->max_blocks = 0;
  // Later tiles of a sequence see more keys: last first, so that no thread starts a long piece at the end.
  for (int64_t t = std::ssize(plan->tiles) - 1; t >= 0; --t) {
    AttentionTile& tile = plan->tiles[t];
    const int64_t first_chunk = tile.first_block / chunk;
    tile.pieces = (tile.end_block - 1) / chunk - first_chunk + 1;
    tile.first_piece = tile.pieces > 1 ? plan->merged_pieces : -1;
    if (tile.pieces > 1) plan->merged_pieces += tile.pieces;
    plan->max_positions = std::max(plan->max_positions, tile.positions);
    for (int64_t i = 0; i < tile.pieces; ++i) {
      const int64_t begin = std::max(tile.first_block, (first_chunk + i) * chunk);
      const int64_t end = std::min(tile.end_block, (first_chunk + i + 1) * chunk);
      plan->pieces.push_back({.tile = t, .index = i, .first_block = begin, .end_block = end});
      plan->max_blocks = std::max(plan->max_blocks, end - begin);
    }
  }
}

}  // namespace plumbline

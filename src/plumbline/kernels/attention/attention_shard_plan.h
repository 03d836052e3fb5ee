// How attention over KV pages that are spread over ranks is cut: what each rank computes of it and where that
// lies in its partials. A pure function of shapes: every rank knows the layout of every other rank's.
#pragma once

#include <cstdint>
#include <vector>

#include "plumbline/kernels/attention/attention_plan.h"

namespace plumbline {

// The blocks [first_block, end_block) of a tile: those of one aligned chunk, all in one page.
struct AttentionShardPiece {
  int64_t tile = 0;
  int64_t first_block = 0;
  int64_t end_block = 0;
  int32_t rank = 0;
  int64_t offset = 0;  // of its nodes [kv_heads, node floats] in the rank's partials
};

// Rank r's partials are the nodes (attention_kernels.h) of its pieces by tile, then chunk, then KV head, all
// ascending. A rank without a key that any row of a tile may see has nothing of that tile.
struct AttentionShardPlan {
  int32_t ranks = 0;
  int64_t kv_heads = 0;
  int64_t group = 0;  // query heads of a KV head
  int64_t head_dim = 0;
  int64_t window = 0;
  int64_t chunk_blocks = 0;                 // the largest power of two that divides a page's blocks
  int64_t max_positions = 0;                // of a tile
  std::vector<AttentionTile> tiles;         // tile.first_piece among `pieces`
  std::vector<AttentionShardPiece> pieces;  // by tile, then chunk
  std::vector<std::vector<int64_t>> owned;  // [ranks] -> that rank's pieces, ascending
  std::vector<int64_t> rank_offsets;        // [ranks + 1] floats: rank r's partials among all ranks'

  int64_t RankFloats(int rank) const { return rank_offsets[rank + 1] - rank_offsets[rank]; }
};

// Fills `plan` for the offsets and lengths of `batch` (its pages are not read) where page i of every sequence
// lies on rank i % ranks, reusing its memory.
void MakeAttentionShardPlan(const KvLayout& layout, const PagedBatch& batch, int64_t heads, int64_t window,
                            int ranks, AttentionShardPlan* plan);

// The largest step of a run.
struct AttentionShardLimits {
  int64_t tokens = 0;   // rows of a step
  int64_t context = 0;  // keys of a sequence, this step's included
};

// Floats that one rank's partials never exceed, whatever the window.
int64_t AttentionShardFloats(const KvLayout& layout, int64_t heads, int ranks,
                             const AttentionShardLimits& limits);

// Gives `plan` the memory for any step within `limits`: MakeAttentionShardPlan then allocates nothing.
void ReserveAttentionShardPlan(const KvLayout& layout, int ranks, const AttentionShardLimits& limits,
                               AttentionShardPlan* plan);

}  // namespace plumbline

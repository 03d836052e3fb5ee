// How one attention call is cut into pieces of work. Pure functions of shapes; no choice made here changes a
// bit.
#pragma once

#include <cstdint>
#include <vector>

#include "plumbline/kernels/attention/attention.h"

namespace plumbline {

// Consecutive rows of one sequence inside one block of 64 positions, for every KV head.
struct AttentionTile {
  int32_t sequence = 0;
  int64_t first_row = 0;  // among all rows of the step
  int64_t positions = 0;
  int64_t first_position = 0;
  int64_t first_block = 0;  // of the keys any of its rows may see
  int64_t end_block = 0;
  int64_t first_piece = 0;  // among the pieces that are merged afterwards; -1 where the tile is one piece
  int64_t pieces = 0;
};

// The blocks [first_block, end_block) of a tile: all of them, or those of one aligned chunk.
struct AttentionPiece {
  int64_t tile = 0;
  int64_t index = 0;  // 0 .. pieces of the tile - 1
  int64_t first_block = 0;
  int64_t end_block = 0;
};

struct AttentionPlan {
  std::vector<AttentionTile> tiles;
  std::vector<AttentionPiece> pieces;  // longest first, roughly
  int64_t chunk_blocks = 0;            // a power of two
  int64_t merged_pieces = 0;           // sum of pieces over the tiles that have several
  int64_t max_positions = 0;           // of a tile
  int64_t max_blocks = 0;              // of a piece
};

// Positions in a tile for `group` query heads: a power of two that divides 64, enough rows to reuse what is
// loaded.
int64_t AttentionTilePositions(int64_t group);

// Blocks in a chunk, a power of two: small enough to feed all threads with `total_blocks` of work, large
// enough to be worth a merge; more than any tile has where there is one thread.
int64_t AttentionChunkBlocks(int64_t total_blocks, int threads);

// The tiles of every row, in order, not yet cut into pieces. Reads the offsets and lengths of `batch` alone.
void CutAttentionTiles(const PagedBatch& batch, int64_t group, int64_t window,
                       std::vector<AttentionTile>* tiles);

// Fills `plan`, reusing its memory.
void MakeAttentionPlan(const PagedBatch& batch, int64_t kv_heads, int64_t group, int64_t window, int threads,
                       AttentionPlan* plan);

}  // namespace plumbline

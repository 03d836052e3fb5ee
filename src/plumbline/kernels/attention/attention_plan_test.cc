#include "plumbline/kernels/attention/attention_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace plumbline {
namespace {

struct Sequences {
  std::vector<int32_t> offsets = {0};
  std::vector<int32_t> lengths = {};

  void Add(int32_t cached, int32_t rows) {
    lengths.push_back(cached);
    offsets.push_back(offsets.back() + rows);
  }
  PagedBatch Batch() const { return {offsets, lengths, {}}; }
};

TEST(AttentionPlan, TilesDivideABlock) {
  EXPECT_EQ(AttentionTilePositions(1), 32);
  EXPECT_EQ(AttentionTilePositions(3), 16);
  EXPECT_EQ(AttentionTilePositions(8), 4);
  EXPECT_EQ(AttentionTilePositions(48), 1);
  EXPECT_EQ(AttentionTilePositions(128), 1);
}

TEST(AttentionPlan, ChunksArePowersOfTwoThatFeedTheThreads) {
  EXPECT_GT(AttentionChunkBlocks(1 << 20, 1), 1 << 30);
  EXPECT_EQ(AttentionChunkBlocks(0, 2), 4);
  EXPECT_EQ(AttentionChunkBlocks(96, 2), 16);
  EXPECT_EQ(AttentionChunkBlocks(1024, 16), 16);
}

// Every row of every tile exactly once, with pieces that cover its blocks in aligned chunks.
TEST(AttentionPlan, CoversEveryRowAndBlock) {
  Sequences sequences;
  for (auto [cached, rows] : {std::pair{0, 130}, {70, 0}, {63, 1}, {5000, 1}, {64, 64}, {1000, 77}}) {
    sequences.Add(cached, rows);
  }
  for (int threads : {1, 2, 3, 5, 64}) {
    for (int64_t window : {0, 1, 100, 3000}) {
      AttentionPlan plan;
      MakeAttentionPlan(sequences.Batch(), 3, 3, window, threads, &plan);
      std::vector<int> rows(sequences.offsets.back());
      for (const AttentionTile& t : plan.tiles) {
        ASSERT_EQ(t.first_position / 64, (t.first_position + t.positions - 1) / 64);
        ASSERT_EQ(t.end_block, t.first_position / 64 + 1);
        ASSERT_EQ(t.first_block, window == 0 ? 0 : std::max<int64_t>(0, t.first_position - window + 1) / 64);
        ASSERT_LE(t.positions, plan.max_positions);
        for (int64_t i = 0; i < t.positions; ++i) ++rows[t.first_row + i];
      }
      for (int count : rows) ASSERT_EQ(count, 1);
      std::map<int64_t, int64_t> next;  // tile -> the block its next piece starts with
      int64_t merged = 0;
      for (const AttentionPiece& p : plan.pieces) {
        const AttentionTile& tile = plan.tiles[p.tile];
        const int64_t begin = next.contains(p.tile) ? next[p.tile] : tile.first_block;
        ASSERT_EQ(p.first_block, begin);
        ASSERT_EQ(p.first_block / plan.chunk_blocks, (p.end_block - 1) / plan.chunk_blocks);
        ASSERT_EQ(p.index, p.first_block / plan.chunk_blocks - tile.first_block / plan.chunk_blocks);
        ASSERT_LE(p.end_block - p.first_block, plan.max_blocks);
        next[p.tile] = p.end_block;
        merged += tile.pieces > 1;
      }
      for (int64_t t = 0; t < std::ssize(plan.tiles); ++t) ASSERT_EQ(next[t], plan.tiles[t].end_block);
      EXPECT_EQ(merged, plan.merged_pieces);
    }
  }
}

TEST(AttentionPlan, OneLongSequenceFeedsEveryThread) {
  Sequences sequences;
  sequences.Add(4095, 1);
  AttentionPlan plan;
  MakeAttentionPlan(sequences.Batch(), 1, 1, 0, 4, &plan);
  EXPECT_GE(plan.pieces.size(), 8u);
  EXPECT_EQ(plan.merged_pieces, std::ssize(plan.pieces));
}

TEST(AttentionPlan, NoRowsNoWork) {
  Sequences sequences;
  sequences.Add(10, 0);
  AttentionPlan plan;
  MakeAttentionPlan(sequences.Batch(), 2, 2, 0, 4, &plan);
  EXPECT_TRUE(plan.tiles.empty());
  EXPECT_TRUE(plan.pieces.empty());
}

}  // namespace
}  // namespace plumbline

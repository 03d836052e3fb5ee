#include "plumbline/base/dyadic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <string>

#include "plumbline/base/float_env.h"

namespace plumbline {
namespace {

// The definition, over leaves [leaves].
float Root(std::span<const float> leaf, int level, int64_t index) {
  if (level == 0) return leaf[index];
  const float left = Root(leaf, level - 1, 2 * index);
  if (((2 * index + 1) << (level - 1)) >= static_cast<int64_t>(leaf.size())) return left;
  return left + Root(leaf, level - 1, 2 * index + 1);
}

float Root(std::span<const float> leaf) {
  int level = 0;
  while ((int64_t{1} << level) < static_cast<int64_t>(leaf.size())) ++level;
  return Root(leaf, level, 0);
}

std::string Root(const std::vector<std::string>& leaf, int level, int64_t index) {
  if (level == 0) return leaf[index];
  const std::string left = Root(leaf, level - 1, 2 * index);
  if (((2 * index + 1) << (level - 1)) >= static_cast<int64_t>(leaf.size())) return left;
  return "(" + left + " " + Root(leaf, level - 1, 2 * index + 1) + ")";
}

std::vector<int64_t> RandomOffsets(std::mt19937& random, int64_t leaves, int ranks) {
  std::vector<int64_t> offsets = {0, leaves};
  for (int i = 1; i < ranks; ++i)
    offsets.push_back(std::uniform_int_distribution<int64_t>(0, leaves)(random));
  std::sort(offsets.begin(), offsets.end());
  return offsets;
}

TEST(DyadicTest, ListsTheMaximalNodesOfARun) {
  EXPECT_EQ(LargestNode(8, 0, 8), (DyadicNode{3, 0, 0, 8}));
  EXPECT_EQ(LargestNode(8, 4, 8), (DyadicNode{2, 1, 4, 8}));
  EXPECT_EQ(LargestNode(8, 1, 8), (DyadicNode{0, 1, 1, 2}));
  EXPECT_EQ(LargestNode(8, 2, 8), (DyadicNode{1, 1, 2, 4}));
  EXPECT_EQ(LargestNode(8, 0, 7), (DyadicNode{2, 0, 0, 4}));
  // Where the leaves end, a node is whole with fewer.
  EXPECT_EQ(LargestNode(7, 4, 7), (DyadicNode{2, 1, 4, 7}));
  EXPECT_EQ(LargestNode(7, 0, 7), (DyadicNode{3, 0, 0, 7}));
  EXPECT_EQ(LargestNode(5, 4, 5), (DyadicNode{0, 4, 4, 5}));
}

TEST(DyadicTest, AlignedSplitsMakeOneNodeARank) {
  for (int ranks : {1, 2, 4, 8}) {
    const LeafSplit split = LeafSplit::Even(32, ranks);
    for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(split.count(rank), 1);
  }
  EXPECT_EQ(LeafSplit::Even(7, 3).end(0), 3);
  EXPECT_EQ(LeafSplit::Even(7, 3).end(1), 5);
}

TEST(DyadicTest, EverySplitFoldsToTheSameTree) {
  std::mt19937 random(1);
  for (int64_t leaves = 1; leaves <= 70; ++leaves) {
    std::vector<std::string> leaf;
    for (int64_t i = 0; i < leaves; ++i) leaf.push_back(std::to_string(i));
    const int top = std::bit_width(static_cast<uint64_t>(leaves - 1));
    for (int ranks = 1; ranks <= 8; ++ranks) {
      const LeafSplit split(RandomOffsets(random, leaves, ranks));
      std::vector<std::string> value;
      for (const DyadicNode& node : split.nodes()) value.push_back(Root(leaf, node.level, node.index));
      FoldDyadic(leaves, split.nodes(), [&](int64_t left, int64_t right, int /*depth*/) {
        value[left] = "(" + value[left] + " " + value[right] + ")";
      });
      ASSERT_EQ(value[0], Root(leaf, top, 0)) << leaves << " leaves over " << ranks;
      for (int rank = 0; rank < ranks; ++rank) {
        ASSERT_LE(split.count(rank), std::max(1, 2 * top)) << leaves << " leaves over " << ranks;
      }
    }
  }
}

TEST(DyadicTest, SumsOfNodesEqualTheDefinitionBitForBit) {
  const ScopedFloatEnv env;
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (int64_t leaves : {1, 2, 3, 5, 8, 13, 31, 64, 100}) {
    for (int64_t columns : {1, 7, 128, 300}) {
      const LeafSplit split(RandomOffsets(random, leaves, 5));
      std::vector<std::vector<float>> leaf(columns, std::vector<float>(leaves));
      for (auto& column : leaf) {
        for (float& x : column) x = normal(random) * std::exp2(4 * normal(random));
      }
      std::vector<std::vector<float>> value(split.nodes().size(), std::vector<float>(columns));
      std::vector<const float*> rows;
      for (size_t i = 0; i < value.size(); ++i) {
        const DyadicNode& node = split.nodes()[i];
        for (int64_t c = 0; c < columns; ++c) {
          value[i][c] = Root(std::span(leaf[c]).subspan(node.begin, node.end - node.begin));
        }
        rows.push_back(value[i].data());
      }
      std::vector<float> sum(columns);
      SumNodes(split, rows, columns, sum.data());
      for (int64_t c = 0; c < columns; ++c) {
        ASSERT_EQ(std::bit_cast<uint32_t>(sum[c]), std::bit_cast<uint32_t>(Root(leaf[c]))) << leaves;
      }
    }
  }
}

TEST(DyadicTest, NoLeavesSumToZero) {
  float out[3] = {1, 2, 3};
  SumNodes(LeafSplit({0, 0, 0}), {}, 3, out);
  EXPECT_EQ(std::vector<float>(out, out + 3), std::vector<float>(3, 0.0f));
}

}  // namespace
}  // namespace plumbline

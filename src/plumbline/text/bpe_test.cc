#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "plumbline/text/bpe_model.h"
#include "plumbline/text/tokenizer_test_util.h"

namespace plumbline {
namespace {

// The definition: look at all pairs, merge the best, start again.
void MergeSlowly(const MergeTable& merges, std::vector<int32_t>& symbols) {
  while (true) {
    MergeTable::Merge best;
    size_t at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const MergeTable::Merge merge = merges.Find(symbols[i], symbols[i + 1]);
      if (merge.id >= 0 && merge.rank < best.rank) {
        best = merge;
        at = i;
      }
    }
    if (best.id < 0) return;
    symbols[at] = best.id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(BpeMerge, IsTheDefinitionForWordsOfAnyLength) {
  testing::SplitMix rng(1);
  for (int round = 0; round < 200; ++round) {
    // Tokens are runs of three letters; equal ranks occur, as they do with scores.
    std::vector<std::string> tokens = {"a", "b", "c"};
    MergeTable merges;
    const uint32_t rank_step = static_cast<uint32_t>(rng.Below(2));
    uint32_t rank = 0;
    for (int i = 0; i < 40; ++i) {
      const auto left = static_cast<int32_t>(rng.Below(tokens.size()));
      const auto right = static_cast<int32_t>(rng.Below(tokens.size()));
      const std::string joined = tokens[static_cast<size_t>(left)] + tokens[static_cast<size_t>(right)];
      auto known = std::ranges::find(tokens, joined);
      const auto id = static_cast<int32_t>(known - tokens.begin());
      if (known == tokens.end()) tokens.push_back(joined);
      if (merges.Find(left, right).id >= 0) continue;
      merges.Insert(left, right, {rank, id});
      rank += rank_step | static_cast<uint32_t>(rng.Below(2));
    }
    for (const size_t length : {0, 1, 2, 3, 7, 31, 32, 33, 34, 100, 400}) {
      std::vector<int32_t> symbols(length);
      for (int32_t& s : symbols) s = static_cast<int32_t>(rng.Below(3));
      std::vector<int32_t> expected = symbols;
      MergeSlowly(merges, expected);
      MergeSymbols(merges, symbols);
      ASSERT_EQ(symbols, expected) << "round " << round << ", length " << length;
    }
  }
}

TEST(BpeMerge, TakesLongWordsInItsStride) {
  MergeTable merges;
  merges.Insert(0, 0, {0, 1});
  for (int32_t i = 1; i < 12; ++i) merges.Insert(i, i, {static_cast<uint32_t>(i), i + 1});
  std::vector<int32_t> symbols(1 << 20, 0);
  MergeSymbols(merges, symbols);
  EXPECT_EQ(symbols, std::vector<int32_t>(1 << 8, 12));
}

TEST(IdTables, FindWhatWasInserted) {
  std::vector<std::string> keys;
  for (int i = 0; i < 5000; ++i)
    keys.push_back(std::string(static_cast<size_t>(i % 40), 'x') + std::to_string(i));
  keys[9] = keys[7];
  keys[11] = "";
  StringList list;
  for (const std::string& key : keys) list.push_back(key);
  const StringTable strings(list), of_vector(keys);
  MergeTable merges;
  for (int32_t i = 0; i < 5000; ++i) {
    merges.Insert(i, i * 7, {static_cast<uint32_t>(i), i + 1});
  }
  for (int32_t i = 0; i < 5000; ++i) {
    const int32_t id = i == 7 ? 9 : i == 11 ? -1 : i;
    EXPECT_EQ(list[static_cast<size_t>(i)], keys[static_cast<size_t>(i)]);
    EXPECT_EQ(strings.Find(keys[static_cast<size_t>(i)]), id);
    EXPECT_EQ(of_vector.Find(keys[static_cast<size_t>(i)]), id);
    EXPECT_EQ(merges.Find(i, i * 7).id, i + 1);
    EXPECT_EQ(merges.Find(i, i * 7 + 1).id, -1);
  }
  EXPECT_EQ(strings.Find("absent"), -1);
  EXPECT_EQ(strings.Find(""), -1);
  EXPECT_EQ(StringTable().Find("absent"), -1);
}

}  // namespace
}  // namespace plumbline

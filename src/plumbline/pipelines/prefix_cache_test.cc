#include "plumbline/pipelines/prefix_cache.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

class PrefixCacheTest : public testing::Test {
 protected:
  // A prefix of pages of two tokens, each page named by its number.
  std::vector<PrefixNode*> Add(const std::vector<std::pair<std::vector<int32_t>, int>>& pages) {
    std::vector<PrefixNode*> prefix;
    for (const auto& [tokens, page] : pages) {
      PrefixNode* parent = prefix.empty() ? nullptr : prefix.back();
      PrefixNode* node = cache_.Use(parent, tokens);
      prefix.push_back(node != nullptr ? node
                                       : cache_.Insert(parent, tokens, static_cast<uint32_t>(page + 1)));
    }
    return prefix;
  }
  int Evicted() { return static_cast<int>(cache_.Evict()) - 1; }

  PrefixCache cache_;
};

TEST_F(PrefixCacheTest, FindsAPageBehindItsOwnPrefixOnly) {
  auto a = Add({{{1, 2}, 0}, {{3, 4}, 1}});
  auto b = Add({{{5, 6}, 2}, {{3, 4}, 3}});
  EXPECT_NE(a[1], b[1]);
  EXPECT_EQ(Add({{{1, 2}, 9}, {{3, 4}, 9}}), a);
  EXPECT_EQ(cache_.Use(nullptr, std::vector<int32_t>{3, 4}), nullptr);
  EXPECT_EQ(cache_.Use(a[1], std::vector<int32_t>{1, 2}), nullptr);
}

TEST_F(PrefixCacheTest, GivesUpWhatIsIdleLongestEndsFirst) {
  auto a = Add({{{1, 2}, 0}, {{3, 4}, 1}});
  auto b = Add({{{1, 2}, 9}, {{5, 6}, 2}});
  auto c = Add({{{7, 8}, 3}});
  EXPECT_EQ(Evicted(), -1);
  cache_.Release(a);
  EXPECT_EQ(cache_.idle_pages(), 1);  // b uses the first page
  cache_.Release(c);
  cache_.Release(b);
  EXPECT_EQ(cache_.idle_pages(), 4);
  c = Add({{{7, 8}, 9}});  // used again: now the latest
  cache_.Release(c);
  EXPECT_EQ(Evicted(), 1);
  EXPECT_EQ(Evicted(), 2);
  EXPECT_EQ(Evicted(), 0);
  EXPECT_EQ(Evicted(), 3);
  EXPECT_EQ(Evicted(), -1);
  EXPECT_EQ(cache_.Use(nullptr, std::vector<int32_t>{1, 2}), nullptr);
}

}  // namespace
}  // namespace plumbline

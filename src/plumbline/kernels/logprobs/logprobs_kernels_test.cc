#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "plumbline/base/float_env.h"
#include "plumbline/kernels/logprobs/logprob_row.h"
#include "plumbline/kernels/logprobs/logprobs_test_util.h"
#include "plumbline/kernels/logprobs/logprobs_twin.h"

namespace plumbline {
namespace {

using logprobs_testing::BitsOf;
using logprobs_testing::Kind;
using logprobs_testing::kKinds;
using logprobs_testing::Row;
namespace twin = logprobs_twin;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// NaN carries no payload worth comparing inside a row; zeros compare equal.
bool SameNumber(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

TEST(LogProbKernels, TileStatsAreTheTwins) {
  const ScopedFloatEnv float_env;
  std::mt19937 random(1);
  for (Kind kind : kKinds) {
    for (int64_t n : {1, 2, 15, 16, 17, 31, 48, 63, 64, 65, 127, 200, 511, 1000, 1023, 1024}) {
      const std::vector<float> storage = Row(kind, n + 1, random);
      const std::span<const float> x(&storage[1], static_cast<size_t>(n));
      const twin::Stats want = twin::TileStats(x);
      for (Isa isa : SupportedIsas()) {
        float m = 0.0f, s = 0.0f;
        LogProbKernelsFor(isa).tile_stats(x.data(), n, &m, &s);
        EXPECT_TRUE(SameNumber(m, want.m)) << Name(isa) << " n " << n << ": " << m << " " << want.m;
        EXPECT_TRUE(SameNumber(s, want.s)) << Name(isa) << " n " << n << ": " << s << " " << want.s;
      }
    }
  }
}

// Tiles of one element make a deep tree out of few numbers: tile t of a row is then (x[t], 1).
TEST(LogProbKernels, NormsMergeByTheDyadicTree) {
  const ScopedFloatEnv float_env;
  std::mt19937 random(2);
  for (int64_t tiles : {1, 2, 3, 4, 5, 6, 7, 8, 11, 48, 49, 63, 64, 149}) {
    for (int64_t rows : {1, 2, 15, 16, 17, 40}) {
      std::vector<float> max(static_cast<size_t>(tiles * rows)), sum(max.size(), 1.0f), norm(rows);
      for (size_t i = 0; i < max.size(); ++i) {
        max[i] = logprobs_testing::Draw(kKinds[i % rows % std::size(kKinds)], random);
        if (max[i] == -kInfinity) sum[i] = 0.0f;
        if (std::isnan(max[i]) || max[i] == kInfinity) sum[i] = twin::kNan;
      }
      for (Isa isa : SupportedIsas()) {
        LogProbKernelsFor(isa).norms(max.data(), sum.data(), tiles, rows, norm.data());
        for (int64_t row = 0; row < rows; ++row) {
          std::vector<twin::Stats> nodes;
          for (int64_t t = 0; t < tiles; ++t) nodes.push_back({max[t * rows + row], sum[t * rows + row]});
          while (nodes.size() > 1) {
            std::vector<twin::Stats> parents;
            for (size_t i = 0; i < nodes.size(); i += 2) {
              parents.push_back(i + 1 < nodes.size() ? twin::Merge(nodes[i], nodes[i + 1]) : nodes[i]);
            }
            nodes = parents;
          }
          const float want = -(nodes[0].m + LogF(nodes[0].s));
          EXPECT_TRUE(std::isnan(want) ? std::isnan(norm[row]) : BitsOf(norm[row]) == BitsOf(want))
              << Name(isa) << " tiles " << tiles << " row " << row << ": " << norm[row] << " " << want;
        }
      }
    }
  }
}

TEST(LogProbKernels, CountsTokensBeforeTheChosenOne) {
  const ScopedFloatEnv float_env;
  std::mt19937 random(3);
  for (Kind kind : kKinds) {
    for (int64_t n : {1, 15, 16, 17, 33, 100, 1024}) {
      const std::vector<float> x = Row(kind, n, random);
      for (int64_t below : {int64_t{0}, int64_t{1}, n / 2, n - 1, n}) {
        const float chosen = x[random() % n];
        int64_t want = 0;
        for (int64_t i = 0; i < n; ++i) want += x[i] > chosen || (x[i] == chosen && i < below);
        for (Isa isa : SupportedIsas()) {
          EXPECT_EQ(LogProbKernelsFor(isa).count_before(x.data(), n, chosen, below), want)
              << Name(isa) << " n " << n << " below " << below;
        }
      }
    }
  }
}

TEST(LogProbKernels, HeapKeepsTheBestInAnyOrderOfTiles) {
  const ScopedFloatEnv float_env;
  std::mt19937 random(4);
  for (Kind kind : kKinds) {
    for (int64_t vocab : {1, 7, 16, 100, 333}) {
      const std::vector<float> x = Row(kind, vocab, random);
      std::vector<TopEntry> want = twin::Ranking(x);
      for (int64_t k : {1, 2, 3, 5, 20, 100}) {
        std::vector<int64_t> pieces((vocab + 24) / 25);
        std::iota(pieces.begin(), pieces.end(), 0);
        std::shuffle(pieces.begin(), pieces.end(), random);
        for (Isa isa : SupportedIsas()) {
          std::vector<TopEntry> heap(k, {-kInfinity, kEmptyId});
          for (int64_t piece : pieces) {
            const int64_t n = std::min<int64_t>(25, vocab - piece * 25);
            LogProbKernelsFor(isa).offer(&x[piece * 25], n, static_cast<int32_t>(piece * 25), heap.data(), k);
          }
          std::sort(heap.begin(), heap.end(), RanksBefore);
          for (int64_t i = 0; i < k; ++i) {
            const bool used = i < static_cast<int64_t>(want.size());
            EXPECT_EQ(heap[i].id, used ? want[i].id : kEmptyId)
                << Name(isa) << " vocab " << vocab << " k " << k;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace plumbline

#include "plumbline/nn/row_scores.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "plumbline/nn/rank_test_util.h"

namespace plumbline {
namespace {

constexpr int64_t kVocab = 2600;  // three tiles
const DecoderConfig kConfig = {
    .hidden = 8, .layers = 1, .heads = 8, .kv_heads = 8, .head_dim = 8, .intermediate = 256, .vocab = kVocab};

struct Rows {
  std::vector<float> logits;  // [rows, kVocab]
  std::vector<int64_t> targets;
  int64_t count() const { return std::ssize(targets); }
};

// Rounded logits, so that many tie; some rows without a target, some ids masked.
Rows RandomRows(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  Rows rows;
  for (int64_t r = 0; r < count; ++r) {
    rows.targets.push_back(random() % 5 == 0 ? -1 : static_cast<int64_t>(random() % kVocab));
    for (int64_t v = 0; v < kVocab; ++v) {
      const float x = normal(random);
      const float rounded = r % 2 == 0 ? std::round(4.0f * x) / 4.0f : x;
      rows.logits.push_back(v >= 2500 && r % 3 == 0 ? -INFINITY : rounded);
    }
  }
  return rows;
}

struct Scores {
  std::vector<float> logprobs;
  std::vector<int64_t> ranks;
  std::vector<TopEntry> top;
};

// Streams the tiles that this rank holds, in blocks of at most kStreamRows rows.
Result<Scores> Stream(const RankContext& rank, const Rows& rows, int64_t top_k, RowScores& scores) {
  scores.Begin(rank, kVocab, rows.targets, top_k);
  for (int64_t begin = 0; begin < rows.count(); begin += kStreamRows) {
    const int64_t end = std::min(rows.count(), begin + kStreamRows);
    const std::span<const int32_t> ids = scores.BeginRows(begin, end);
    std::vector<float> chosen;
    for (int64_t r = begin; r < end; ++r) chosen.push_back(rows.logits[r * kVocab + ids[r - begin]]);
    scores.TakeChosen(chosen);
    for (int64_t id = rank.shard.vocab.begin; id < rank.shard.vocab.end; id += kVocabTile) {
      const int64_t width = std::min<int64_t>(kVocabTile, kVocab - id);
      std::vector<float> tile;
      for (int64_t r = begin; r < end; ++r) {
        const auto first = rows.logits.begin() + r * kVocab + id;
        tile.insert(tile.end(), first, first + width);
      }
      scores.TakeTile(id / kVocabTile, {tile.data(), end - begin, width}, 0);
    }
    RETURN_IF_ERROR(scores.EndRows());
  }
  return Scores{{scores.logprobs().begin(), scores.logprobs().end()},
                {scores.ranks().begin(), scores.ranks().end()},
                {scores.top().begin(), scores.top().end()}};
}

void ExpectSame(const Scores& got, const Scores& want) {
  ASSERT_EQ(got.logprobs.size(), want.logprobs.size());
  for (size_t i = 0; i < want.logprobs.size(); ++i) {
    const bool none = std::isnan(want.logprobs[i]) && std::isnan(got.logprobs[i]);
    EXPECT_TRUE(none || std::memcmp(&got.logprobs[i], &want.logprobs[i], sizeof(float)) == 0) << "row " << i;
  }
  EXPECT_EQ(got.ranks, want.ranks);
  ASSERT_EQ(got.top.size(), want.top.size());
  for (size_t i = 0; i < want.top.size(); ++i) {
    ASSERT_EQ(got.top[i].id, want.top[i].id) << i;
    ASSERT_EQ(std::memcmp(&got.top[i].value, &want.top[i].value, sizeof(float)), 0) << i;
  }
}

TEST(RowScoresTest, ShardsGiveTheScoresOfOneRankOnEveryRank) {
  const Rows rows = RandomRows(150, 3), few = RandomRows(2, 5), none;
  for (int64_t top_k : {0, 1, 20, 1500, 9000}) {
    std::vector<Scores> want;
    const auto run = [&](const RankContext& rank) -> Status {
      RowScores scores;  // used again by smaller and larger steps
      const Rows* const steps[] = {&few, &rows, &none, &few};
      for (size_t i = 0; i < std::size(steps); ++i) {
        if (top_k > 100 && i == 1) continue;
        ASSIGN_OR_RETURN(Scores got, Stream(rank, *steps[i], top_k, scores));
        if (rank.stage.size() == 1) {
          want.push_back(std::move(got));
        } else {
          ExpectSame(got, want[top_k > 100 && i > 1 ? i - 1 : i]);
        }
      }
      return {};
    };
    for (const ParallelDegrees& d :
         {ParallelDegrees{}, {.tp = 2}, {.dp = 3}, {.cp = 4}, {.tp = 4, .dp = 2}}) {
      const Status status = RunOnRanks(kConfig, d, run);
      ASSERT_TRUE(status.has_value()) << status.error().message;
    }
    EXPECT_FALSE(want[0].logprobs.empty());
  }
}

// The definition, for one row: ties count by id.
TEST(RowScoresTest, RankCountsTokensBeforeTheTarget) {
  const Rows rows = RandomRows(20, 7);
  const Status status = RunOnRanks(kConfig, {.tp = 2}, [&](const RankContext& rank) -> Status {
    RowScores scores;
    ASSIGN_OR_RETURN(const Scores got, Stream(rank, rows, 3, scores));
    for (int64_t r = 0; r < rows.count(); ++r) {
      const float* x = rows.logits.data() + r * kVocab;
      const int64_t target = rows.targets[r];
      int64_t before = 0;
      double sum = 0;
      for (int64_t v = 0; v < kVocab && target >= 0; ++v) {
        before += x[v] > x[target] || (x[v] == x[target] && v < target);
        sum += std::exp(static_cast<double>(x[v]));
      }
      EXPECT_EQ(got.ranks[r], target < 0 ? 0 : before + 1) << r;
      EXPECT_EQ(std::isnan(got.logprobs[r]), target < 0) << r;
      if (target >= 0 && std::isfinite(x[target])) {
        EXPECT_NEAR(got.logprobs[r], x[target] - std::log(sum), 1e-4) << r;
      }
      int64_t best = 0;
      for (int64_t v = 1; v < kVocab; ++v) best = x[v] > x[best] ? v : best;
      EXPECT_EQ(got.top[3 * r].id, best) << r;
    }
    return {};
  });
  ASSERT_TRUE(status.has_value()) << status.error().message;
}

}  // namespace
}  // namespace plumbline

#include "plumbline/nn/shard.h"

#include <gtest/gtest.h>

#include "plumbline/kernels/logprobs/logprobs.h"
#include "plumbline/nn/leaf.h"
#include "plumbline/nn/rank_test_util.h"

namespace plumbline {
namespace {

DecoderConfig Config(int64_t heads, int64_t kv_heads, int64_t layers = 8) {
  return {.layers = layers,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = 16,
          .intermediate = 1300,
          .vocab = 5000};
}

// Runs that lie one behind the other and are all of [0, n); cuts between them only at multiples of `piece`.
void ExpectCover(const std::vector<Range>& parts, int64_t n, int64_t piece, const std::string& what) {
  int64_t next = 0;
  for (const Range& part : parts) {
    EXPECT_EQ(part.begin, next) << what;
    EXPECT_GE(part.end, part.begin) << what;
    EXPECT_TRUE(part.end % piece == 0 || part.end == n) << what << ": cut at " << part.end;
    next = part.end;
  }
  EXPECT_EQ(next, n) << what;
}

void ExpectEvenPieces(const std::vector<Range>& parts, int64_t piece, const std::string& what) {
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    const int64_t left = (parts[i].size() + piece - 1) / piece,
                  right = (parts[i + 1].size() + piece - 1) / piece;
    EXPECT_TRUE(left == right || left == right + 1) << what << ": " << left << " then " << right;
  }
}

std::string Describe(const DecoderConfig& c, const ParallelDegrees& d) {
  return fmt::format("tp {} dp {} pp {} cp {}, {} heads on {} KV heads, vocab {}", d.tp, d.dp, d.pp, d.cp,
                     c.heads, c.kv_heads, c.vocab);
}

TEST(ShardTest, CutsCoverEverythingOnceForEveryProductOfDegrees) {
  int checked = 0;
  for (const auto& [heads, kv_heads] : {std::pair<int64_t, int64_t>{8, 8}, {9, 3}, {8, 2}, {16, 1}, {5, 5}}) {
    for (int64_t vocab : {7, 1024, 1500, 5000, 128256}) {
      DecoderConfig config = Config(heads, kv_heads);
      config.vocab = vocab;
      for (int ranks = 1; ranks <= 8; ++ranks) {
        for (const ParallelDegrees& d : AllDegrees(ranks)) {
          if (!CheckDegrees(config, d)) continue;
          const std::string what = Describe(config, d);
          ++checked;
          std::vector<Range> layers, all_heads, columns, ids;
          for (int stage = 0; stage < d.pp; ++stage)
            layers.push_back(ShardOf(config, d, RankOf(d, {.stage = stage})).layers);
          for (int tensor = 0; tensor < d.tp; ++tensor) {
            const DecoderShard shard = ShardOf(config, d, RankOf(d, {.tensor = tensor}));
            all_heads.push_back(shard.heads);
            columns.push_back(shard.intermediate);
            const int64_t group = heads / kv_heads;
            EXPECT_EQ(shard.kv_heads.begin, shard.heads.begin / group) << what;
            EXPECT_EQ(shard.kv_heads.end, (shard.heads.end + group - 1) / group) << what;
          }
          for (int r = 0; r < d.StageRanks(); ++r) ids.push_back(ShardOf(config, d, r).vocab);
          ExpectCover(layers, config.layers, 1, what);
          ExpectCover(all_heads, heads, 1, what);
          ExpectCover(columns, config.intermediate, kMaxLeaf, what);
          ExpectCover(ids, vocab, kVocabTile, what);
          ExpectEvenPieces(layers, 1, what);
          ExpectEvenPieces(columns, kMaxLeaf, what);
          ExpectEvenPieces(ids, kVocabTile, what);
        }
      }
    }
  }
  EXPECT_GT(checked, 500);
}

TEST(ShardTest, RanksAreNumberedReplicaThenContextThenTensorFromTheLastStage) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (const ParallelDegrees& d : AllDegrees(ranks)) {
      for (int r = 0; r < ranks; ++r) {
        const DecoderShard shard = ShardOf(Config(8, 8), d, r);
        EXPECT_EQ(RankOf(d, shard.at), r);
        EXPECT_EQ(shard.StageRank(), r % d.StageRanks());
        EXPECT_EQ(shard.LastStage(), r < d.StageRanks());
        EXPECT_EQ(shard.FirstStage(), r >= ranks - d.StageRanks());
      }
    }
  }
  const ParallelDegrees d{.tp = 2, .dp = 2, .pp = 2, .cp = 1};
  EXPECT_EQ(CoordinatesOf(d, 3), (RankCoordinates{.tensor = 1, .replica = 1, .stage = 1}));
  EXPECT_EQ(CoordinatesOf(d, 4), (RankCoordinates{.stage = 0}));
}

TEST(ShardTest, RanksWithoutAVocabularyTileHoldNothing) {
  const std::vector<Range> want = {{0, 1024}, {1024, 1500}, {1500, 1500}, {1500, 1500}};
  for (int r = 0; r < 4; ++r) EXPECT_EQ(VocabOf(1500, 4, r), want[r]) << r;
  EXPECT_EQ(VocabOf(7, 2, 0), (Range{0, 7}));
  EXPECT_EQ(VocabOf(7, 2, 1).size(), 0);
}

TEST(ShardTest, KvHeadsGoAroundAsWholeGroupsOrAreShared) {
  const DecoderConfig three = Config(9, 3);
  EXPECT_EQ(KvHeadsOf(three, 2, 0), (Range{0, 2}));
  EXPECT_EQ(KvHeadsOf(three, 2, 1), (Range{2, 3}));
  EXPECT_EQ(HeadsOf(three, 2, 0), (Range{0, 6}));
  EXPECT_EQ(HeadsOf(three, 2, 1), (Range{6, 9}));
  const DecoderConfig two = Config(8, 2);
  for (int tensor = 0; tensor < 4; ++tensor) {
    EXPECT_EQ(KvHeadsOf(two, 4, tensor), (Range{tensor / 2, tensor / 2 + 1})) << tensor;
    EXPECT_EQ(HeadsOf(two, 4, tensor), (Range{2 * tensor, 2 * tensor + 2})) << tensor;
  }
}

TEST(ShardTest, RowParallelCutsKeepWantedOnesBetweenLeavesOnly) {
  const std::vector<Range> aligned = {{0, 512}, {512, 768}, {768, 1000}};
  EXPECT_EQ(RowParallelCuts(1000, 256, aligned), aligned);
  // Between heads of 96, not between leaves of 256: whole leaves then, four over three ranks.
  const std::vector<Range> wanted = {{0, 384}, {384, 768}, {768, 960}};
  const std::vector<Range> leaves = {{0, 512}, {512, 768}, {768, 960}};
  EXPECT_EQ(RowParallelCuts(960, 256, wanted), leaves);
  EXPECT_EQ(RowParallelCuts(960, 96, wanted), wanted);
  // Fewer leaves than ranks.
  const std::vector<Range> halves = {{0, 50}, {50, 100}}, whole = {{0, 100}, {100, 100}};
  EXPECT_EQ(RowParallelCuts(100, 256, halves), whole);
}

TEST(ShardTest, ExpertsAreCutWholeOrByColumns) {
  DecoderConfig config = Config(8, 8);
  config.experts = {.count = 9, .per_token = 2, .intermediate = 700};
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (ParallelDegrees d : AllDegrees(ranks)) {
      std::vector<Range> columns;
      for (int tensor = 0; tensor < d.tp; ++tensor) {
        const DecoderShard shard = ShardOf(config, d, RankOf(d, {.tensor = tensor}));
        columns.push_back(shard.expert_intermediate);
        EXPECT_EQ(shard.experts, (Range{0, 9}));
      }
      ExpectCover(columns, 700, kMaxLeaf, Describe(config, d));
      d.ep = d.tp * d.dp;
      if (d.ep == 1) continue;
      EXPECT_TRUE(CheckDegrees(config, d));
      // Each stage and context shard has all experts once.
      for (int stage = 0; stage < d.pp; ++stage) {
        for (int context = 0; context < d.cp; ++context) {
          std::vector<Range> experts;
          for (int r = 0; r < d.ep; ++r) {
            const RankCoordinates at{
                .tensor = r % d.tp, .replica = r / d.tp, .stage = stage, .context = context};
            const DecoderShard shard = ShardOf(config, d, RankOf(d, at));
            EXPECT_EQ(shard.ExpertRank(), r);
            EXPECT_EQ(shard.expert_intermediate, (Range{0, 700}));
            experts.push_back(shard.experts);
          }
          ExpectCover(experts, 9, 1, Describe(config, d));
          ExpectEvenPieces(experts, 1, Describe(config, d));
        }
      }
    }
  }
}

TEST(ShardTest, RefusesDegreesThatDoNotCutTheModel) {
  const auto error = [](const DecoderConfig& config, const ParallelDegrees& degrees) {
    const Status status = CheckDegrees(config, degrees);
    return status ? std::string("accepted") : status.error().message;
  };
  const DecoderConfig config = Config(8, 2, 4);
  EXPECT_EQ(error(config, {.tp = 0}), "--tp: got 0, want 1 to 64");
  EXPECT_EQ(error(config, {.dp = -1}), "--dp: got -1, want 1 to 64");
  EXPECT_EQ(error(config, {.cp = 65}), "--cp: got 65, want 1 to 64");
  EXPECT_EQ(error(config, {.tp = 8, .dp = 3, .cp = 3}),
            "--tp x --dp x --pp x --cp: got 72 ranks, want at most 64");
  EXPECT_EQ(error(config, {.pp = 5}), "--pp: got 5 stages, want at most the model's 4 layers");
  for (int tp : {3, 5, 6, 16}) {
    EXPECT_EQ(error(config, {.tp = tp}),
              fmt::format("--tp: got {}, want at most the model's 2 KV heads, or a multiple of them that "
                          "divides its 8 query heads",
                          tp));
  }
  for (int tp : {1, 2, 4, 8}) EXPECT_EQ(error(config, {.tp = tp}), "accepted") << tp;
  for (int tp : {1, 2, 3, 9}) EXPECT_EQ(error(Config(9, 3), {.tp = tp}), "accepted") << tp;
  EXPECT_EQ(error(config, {.tp = 2, .dp = 2, .pp = 4, .cp = 4}), "accepted");
  EXPECT_EQ(error(config, {.tp = 2, .ep = 2}), "--ep: got 2, want 1 of a model without experts");
  DecoderConfig sparse = config;
  sparse.experts = {.count = 6, .per_token = 2, .intermediate = 64};
  EXPECT_EQ(error(sparse, {.tp = 2, .dp = 3, .ep = 6}), "accepted");
  EXPECT_EQ(error(sparse, {.tp = 2, .dp = 3}), "accepted");
  EXPECT_EQ(error(sparse, {.ep = 0}), "--ep: got 0, want 1 to 64");
  EXPECT_EQ(error(sparse, {.tp = 2, .dp = 2, .ep = 2}), "--ep: got 2, want 1 or all 4 ranks of --tp x --dp");
  EXPECT_EQ(error(sparse, {.ep = 2}), "--ep: got 2, want 1 or all 1 ranks of --tp x --dp");
  EXPECT_EQ(error(sparse, {.tp = 2, .dp = 4, .ep = 8}), "--ep: got 8, want at most the model's 6 experts");
}

}  // namespace
}  // namespace plumbline

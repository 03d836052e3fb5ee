// A vocabulary in shards: each accumulates its own tiles, and all states merge to the unsharded numbers.
#include <gtest/gtest.h>

#include <algorithm>

#include "plumbline/kernels/count_allocations.h"
#include "plumbline/kernels/logprobs/logprob_accumulator.h"
#include "plumbline/kernels/logprobs/logprob_accumulator_test_util.h"

namespace plumbline {
namespace {

using logprobs_testing::AddTiles;
using logprobs_testing::BitsOf;
using logprobs_testing::RowResults;
using logprobs_testing::Rows;

// All shards' states as a gather leaves them.
struct Gathered {
  Gathered(const LogProbShape& shape_in, std::vector<int64_t> bounds_in)
      : shape(shape_in),
        bounds(std::move(bounds_in)),
        tile_max(shape.Tiles() * shape.rows),
        tile_sum(tile_max.size()),
        before(Shards() * shape.rows),
        best(Shards() * shape.rows * shape.Top()) {}
  int64_t Shards() const { return std::ssize(bounds) - 1; }

  LogProbShard Of(int64_t shard) {
    const int64_t at = bounds[shard] * shape.rows, count = (bounds[shard + 1] - bounds[shard]) * shape.rows;
    const int64_t entries = shape.rows * shape.Top();
    return {std::span(tile_max).subspan(at, count), std::span(tile_sum).subspan(at, count),
            std::span(before).subspan(shard * shape.rows, shape.rows),
            std::span(best).subspan(shard * entries, entries)};
  }
  LogProbShards All() const { return {tile_max, tile_sum, before, best}; }

  LogProbShape shape;
  std::vector<int64_t> bounds;  // [shards + 1] tiles
  std::vector<float> tile_max, tile_sum;
  std::vector<int64_t> before;
  std::vector<TopEntry> best;
};

// Uneven and often empty.
std::vector<int64_t> RandomBounds(int shards, int64_t tiles, std::mt19937& random) {
  std::vector<int64_t> bounds = {0, tiles};
  for (int i = 1; i < shards; ++i) bounds.push_back(static_cast<int64_t>(random() % (tiles + 1)));
  std::sort(bounds.begin(), bounds.end());
  return bounds;
}

void ExpectSame(const RowResults& got, const RowResults& want) {
  ASSERT_EQ(got.ranks, want.ranks);
  for (size_t i = 0; i < want.chosen_logprobs.size(); ++i) {
    ASSERT_EQ(BitsOf(got.chosen_logprobs[i]), BitsOf(want.chosen_logprobs[i])) << "row " << i;
  }
  ASSERT_EQ(got.top.size(), want.top.size());
  for (size_t i = 0; i < want.top.size(); ++i) {
    ASSERT_EQ(got.top[i].id, want.top[i].id) << "entry " << i;
    ASSERT_EQ(BitsOf(got.top[i].value), BitsOf(want.top[i].value)) << "entry " << i;
  }
}

TEST(LogProbShards, MergeToTheUnshardedBits) {
  std::mt19937 random(31);
  for (int64_t vocab : {1, 1000, 1024, 1025, 3000, 9300, 20000}) {
    const Rows data(19, vocab, random);
    for (int top_k : {0, 1, 5, 33, 1500}) {
      const LogProbShape shape = data.Shape(top_k);
      const Isa isa = SupportedIsas()[random() % SupportedIsas().size()];
      LogProbAccumulator whole(isa, 2, shape), shard_of(isa, 3, data.Shape(1));
      whole.SetChosen(data.chosen, data.chosen_logits);
      AddTiles(data, 0, shape.Tiles(), 2, random, &whole);
      RowResults want(shape);
      whole.Finish(want.View());
      for (int shards : {1, 2, 3, 8}) {
        Gathered gathered(shape, RandomBounds(shards, shape.Tiles(), random));
        for (int shard = 0; shard < shards; ++shard) {
          const int64_t begin = gathered.bounds[shard], end = gathered.bounds[shard + 1];
          shard_of.Reset(shape, begin, end);
          shard_of.SetChosen(data.chosen, data.chosen_logits);
          AddTiles(data, begin, end, 3, random, &shard_of);
          shard_of.Export(gathered.Of(shard));
        }
        RowResults got(shape);
        MergeLogProbShards(isa, shape, data.chosen, data.chosen_logits, gathered.All(), got.View());
        ExpectSame(got, want);
        if (HasFatalFailure()) FAIL() << "vocab " << vocab << " top_k " << top_k << " shards " << shards;
      }
    }
  }
}

// The greatest logit, and the one after it, in all three tiles.
TEST(LogProbShards, TiesKeepTheLowestIdsAcrossShards) {
  std::mt19937 random(32);
  Rows data(1, 3 * kVocabTile, random);
  std::fill(data.logits.begin(), data.logits.end(), 0.0f);
  for (int32_t id : {2050, 1500, 1023, 7, 3000}) data.logits[id] = 1.0f;
  data.chosen = {2050};
  data.chosen_logits = {1.0f};
  const LogProbShape shape = data.Shape(7);
  for (const std::vector<int64_t>& bounds :
       {std::vector<int64_t>{0, 1, 3}, {0, 2, 3}, {0, 0, 1, 1, 2, 3}, {0, 3}}) {
    Gathered gathered(shape, bounds);
    for (int64_t shard = 0; shard < gathered.Shards(); ++shard) {
      LogProbAccumulator accumulator(SupportedIsas().back(), 1, shape);
      accumulator.Reset(shape, bounds[shard], bounds[shard + 1]);
      accumulator.SetChosen(data.chosen, data.chosen_logits);
      AddTiles(data, bounds[shard], bounds[shard + 1], 1, random, &accumulator);
      accumulator.Export(gathered.Of(shard));
    }
    RowResults got(shape);
    MergeLogProbShards(SupportedIsas().back(), shape, data.chosen, data.chosen_logits, gathered.All(),
                       got.View());
    EXPECT_EQ(got.ranks[0], 4);
    const int32_t want[] = {7, 1023, 1500, 2050, 3000, 0, 1};
    for (int slot = 0; slot < 7; ++slot) EXPECT_EQ(got.top[slot].id, want[slot]);
  }
}

TEST(LogProbShards, AllocateNothingOnceConstructed) {
  const Isa isa = SupportedIsas().back();
  std::mt19937 random(34);
  const Rows data(12, 5000, random);
  LogProbAccumulator accumulator(isa, 4, {.rows = 12, .vocab = 5000, .top_k = 9});
  Gathered gathered(data.Shape(9), {0, 2, 5});
  RowResults results(data.Shape(9)), small(data.Shape(3));
  const MatrixView<const float> logits(data.logits.data(), data.rows, data.vocab);
  const auto add_tile = [&](int64_t tile) {
    const int64_t begin = tile * kVocabTile, width = std::min<int64_t>(kVocabTile, data.vocab - begin);
    accumulator.AddTile(tile, {logits.data + begin, data.rows, width, data.vocab},
                        static_cast<int>(tile % 4));
  };
  const int64_t before = Allocations();
  for (int64_t shard = 0; shard < 2; ++shard) {
    accumulator.Reset(data.Shape(9), gathered.bounds[shard], gathered.bounds[shard + 1]);
    accumulator.SetChosen(data.chosen, data.chosen_logits);
    for (int64_t tile = gathered.bounds[shard]; tile < gathered.bounds[shard + 1]; ++tile) add_tile(tile);
    accumulator.Export(gathered.Of(shard));
  }
  MergeLogProbShards(isa, data.Shape(9), data.chosen, data.chosen_logits, gathered.All(), results.View());
  accumulator.Reset(data.Shape(3));
  for (int64_t tile = 0; tile < 5; ++tile) add_tile(tile);
  accumulator.Finish(small.View());
  EXPECT_EQ(Allocations(), before);
  for (int64_t row = 0; row < data.rows; ++row) {
    for (int slot = 0; slot < 3; ++slot) EXPECT_EQ(small.Top(row)[slot].id, results.Top(row)[slot].id);
  }
}

}  // namespace
}  // namespace plumbline

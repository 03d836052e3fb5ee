#include "plumbline/kernels/logprobs/logprob_accumulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "plumbline/base/float_env.h"
#include "plumbline/kernels/logprobs/logprob_accumulator_test_util.h"
#include "plumbline/kernels/logprobs/logprobs_twin.h"

namespace plumbline {
namespace {

using logprobs_testing::AddTiles;
using logprobs_testing::BitsOf;
using logprobs_testing::RowResults;
using logprobs_testing::Rows;
namespace twin = logprobs_twin;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

RowResults Accumulate(const Rows& data, Isa isa, int threads, int top_k, std::mt19937& random) {
  const LogProbShape shape = data.Shape(top_k);
  LogProbAccumulator accumulator(isa, threads, shape);
  accumulator.SetChosen(data.chosen, data.chosen_logits);
  AddTiles(data, 0, shape.Tiles(), threads, random, &accumulator);
  RowResults results(shape);
  accumulator.Finish(results.View());
  return results;
}

void ExpectTwin(const Rows& data, int top_k, const RowResults& results) {
  const ScopedFloatEnv float_env;
  ASSERT_EQ(results.top_k, std::min<int64_t>(top_k, data.vocab));
  for (int64_t row = 0; row < data.rows; ++row) {
    const std::span<const float> x = data.X(row);
    const float norm = twin::Norm(x);
    EXPECT_EQ(BitsOf(results.chosen_logprobs[row]), BitsOf(twin::LogProb(data.chosen_logits[row], norm)))
        << row;
    EXPECT_EQ(results.ranks[row], twin::Rank(x, data.chosen[row])) << row;
    const std::vector<TopEntry> best = twin::Ranking(x);
    const std::span<const TopEntry> top = results.Top(row);
    for (size_t slot = 0; slot < top.size(); ++slot) {
      const bool used = slot < best.size();
      EXPECT_EQ(top[slot].id, used ? best[slot].id : data.vocab) << "row " << row << " slot " << slot;
      EXPECT_EQ(BitsOf(top[slot].value), BitsOf(used ? twin::LogProb(best[slot].value, norm) : twin::kNan));
    }
  }
}

TEST(LogProbAccumulator, IsTheTwinInAnyOrderOfTilesAndThreads) {
  std::mt19937 random(21);
  for (int64_t vocab : {1, 2, 16, 17, 1023, 1024, 1025, 2048, 5000, 9300}) {
    const Rows data(19, vocab, random);
    for (int top_k : {0, 1, 5, 20, 33}) {
      for (Isa isa : SupportedIsas()) {
        for (int threads : {1, 2, 3, 5}) {
          ExpectTwin(data, top_k, Accumulate(data, isa, threads, top_k, random));
          if (testing::Test::HasFailure()) {
            FAIL() << "vocab " << vocab << " top_k " << top_k << " isa " << Name(isa) << " threads "
                   << threads;
          }
        }
      }
    }
  }
}

TEST(LogProbAccumulator, ALargeVocabularyIsTheTwin) {
  std::mt19937 random(22);
  const Rows data(9, 49152, random);
  for (Isa isa : SupportedIsas()) {
    ExpectTwin(data, 5, Accumulate(data, isa, 2, 5, random));
    ExpectTwin(data, 20, Accumulate(data, isa, 3, 20, random));
  }
}

TEST(LogProbAccumulator, AgreesWithTheMaterialisedFormBitForBit) {
  std::mt19937 random(23);
  for (int64_t vocab : {1, 5, 1024, 1025, 49152}) {
    const Rows data(9, vocab, random);
    std::vector<uint32_t> offsets(data.rows + 1);
    std::iota(offsets.begin(), offsets.end(), 0u);
    const std::vector<uint32_t> sampled(data.chosen.begin(), data.chosen.end());
    std::vector<float> values(data.rows * 8);
    std::vector<uint32_t> ids(values.size());
    ThreadPool pool(3);
    ASSERT_TRUE(ComputeLogProbabilities(
        {pool, SupportedIsas().front()}, 3,
        {MatrixView<float>(values.data(), data.rows, 8), MatrixView<uint32_t>(ids.data(), data.rows, 8)},
        {MatrixView<const float>(data.logits.data(), data.rows, vocab), sampled, sampled, offsets, offsets,
         offsets}));
    const RowResults results = Accumulate(data, SupportedIsas().back(), 2, 7, random);
    for (int64_t row = 0; row < data.rows; ++row) {
      EXPECT_EQ(BitsOf(values[row * 8 + 7]), BitsOf(results.chosen_logprobs[row]));
      const std::span<const TopEntry> top = results.Top(row);
      for (size_t slot = 0; slot < top.size(); ++slot) {
        // Slots past the logits above -inf differ by definition.
        if (ids[row * 8 + slot] == vocab) break;
        EXPECT_EQ(ids[row * 8 + slot], static_cast<uint32_t>(top[slot].id));
        EXPECT_EQ(BitsOf(values[row * 8 + slot]), BitsOf(top[slot].value));
      }
    }
  }
}

TEST(LogProbAccumulator, FillsTheTopWithInfinitelyUnlikelyTokensById) {
  const std::vector<float> x = {-kInfinity, 2.0f, -kInfinity, -kInfinity};
  const LogProbShape shape = {.rows = 1, .vocab = 4, .top_k = 3};
  LogProbAccumulator accumulator(Isa::kAvx2, 1, shape);
  const std::vector<int32_t> chosen = {2};
  const std::vector<float> chosen_logits = {-kInfinity};
  accumulator.SetChosen(chosen, chosen_logits);
  accumulator.AddTile(0, MatrixView<const float>(x.data(), 1, 4), 0);
  RowResults results(shape);
  accumulator.Finish(results.View());
  EXPECT_EQ(results.chosen_logprobs[0], -kInfinity);
  EXPECT_EQ(results.ranks[0], 3);
  const TopEntry want[] = {{0.0f, 1}, {-kInfinity, 0}, {-kInfinity, 2}};
  for (int slot = 0; slot < 3; ++slot) {
    EXPECT_EQ(results.top[slot].id, want[slot].id);
    EXPECT_EQ(results.top[slot].value, want[slot].value);
  }
}

TEST(LogProbAccumulator, NeedsNoChosenTokens) {
  std::mt19937 random(24);
  const Rows data(3, 1500, random);
  LogProbAccumulator accumulator(SupportedIsas().back(), 1, data.Shape(2));
  accumulator.AddTile(1, MatrixView<const float>(&data.logits[1024], 3, 476, 1500), 0);
  accumulator.AddTile(0, MatrixView<const float>(data.logits.data(), 3, 1024, 1500), 0);
  RowResults results(data.Shape(2));
  accumulator.Finish(results.View());
  EXPECT_TRUE(std::isnan(results.chosen_logprobs[0]));
  EXPECT_EQ(results.ranks[0], 0);
  EXPECT_EQ(results.top[0].id, twin::Ranking(data.X(0))[0].id);
}

TEST(LogProbAccumulator, LeavesTheCallersFloatingPointEnvironment) {
  const unsigned before = _mm_getcsr();
  std::mt19937 random(25);
  const Rows data(2, 40, random);
  Accumulate(data, Isa::kAvx2, 1, 2, random);
  EXPECT_EQ(_mm_getcsr() & 0xffc0u, before & 0xffc0u);
}

}  // namespace
}  // namespace plumbline

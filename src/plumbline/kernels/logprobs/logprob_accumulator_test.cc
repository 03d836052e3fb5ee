#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

#include "plumbline/base/float_env.h"
#include "plumbline/kernels/logprobs/logprob_row.h"
#include "plumbline/kernels/logprobs/logprobs_test_util.h"
#include "plumbline/kernels/logprobs/logprobs_twin.h"

namespace plumbline {
namespace {

using logprobs_testing::BitsOf;
using logprobs_testing::kKinds;
using logprobs_testing::Row;
namespace twin = logprobs_twin;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Rows {
  Rows(int64_t rows_in, int64_t vocab_in, std::mt19937& random) : rows(rows_in), vocab(vocab_in) {
    for (int64_t row = 0; row < rows; ++row) {
      const std::vector<float> x = Row(kKinds[row % std::size(kKinds)], vocab, random);
      logits.insert(logits.end(), x.begin(), x.end());
      chosen.push_back(static_cast<int32_t>(random() % vocab));
      chosen_logits.push_back(x[chosen.back()]);
    }
  }
  std::span<const float> X(int64_t row) const { return {&logits[row * vocab], static_cast<size_t>(vocab)}; }
  int64_t rows, vocab;
  std::vector<float> logits, chosen_logits;
  std::vector<int32_t> chosen;
};

// Tiles in a random order, dealt to the threads at random; the tile is copied, so that the accumulator sees
// it alone and at an odd address.
std::vector<RowLogProbs> Accumulate(const Rows& data, Isa isa, int threads, int top_k, std::mt19937& random) {
  LogProbAccumulator accumulator(isa, threads, data.rows, data.vocab, top_k);
  accumulator.SetChosen(data.chosen, data.chosen_logits);
  std::vector<std::vector<int64_t>> work(threads);
  std::vector<int64_t> tiles((data.vocab + kVocabTile - 1) / kVocabTile);
  std::iota(tiles.begin(), tiles.end(), 0);
  std::shuffle(tiles.begin(), tiles.end(), random);
  for (int64_t tile : tiles) work[random() % threads].push_back(tile);
  std::vector<std::thread> workers;
  for (int thread = 0; thread < threads; ++thread) {
    workers.emplace_back([&, thread] {
      for (int64_t tile : work[thread]) {
        const int64_t width = std::min<int64_t>(kVocabTile, data.vocab - tile * kVocabTile);
        std::vector<float> copy(data.rows * (width + 1) + 1);
        for (int64_t row = 0; row < data.rows; ++row) {
          const auto from = data.logits.begin() + row * data.vocab + tile * kVocabTile;
          std::copy(from, from + width, copy.begin() + 1 + row * (width + 1));
        }
        accumulator.AddTile(tile, MatrixView<const float>(&copy[1], data.rows, width, width + 1), thread);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  return accumulator.Finish();
}

void ExpectTwin(const Rows& data, int top_k, const std::vector<RowLogProbs>& results) {
  const ScopedFloatEnv float_env;
  ASSERT_EQ(static_cast<int64_t>(results.size()), data.rows);
  for (int64_t row = 0; row < data.rows; ++row) {
    const std::span<const float> x = data.X(row);
    const float norm = twin::Norm(x);
    const RowLogProbs& result = results[row];
    EXPECT_EQ(BitsOf(result.chosen_logprob), BitsOf(twin::LogProb(data.chosen_logits[row], norm))) << row;
    EXPECT_EQ(result.rank, twin::Rank(x, data.chosen[row])) << row;
    const std::vector<TopEntry> best = twin::Ranking(x);
    ASSERT_EQ(static_cast<int64_t>(result.top.size()), std::min<int64_t>(top_k, data.vocab));
    for (size_t slot = 0; slot < result.top.size(); ++slot) {
      const bool used = slot < best.size();
      EXPECT_EQ(result.top[slot].first, used ? best[slot].id : data.vocab)
          << "row " << row << " slot " << slot;
      EXPECT_EQ(BitsOf(result.top[slot].second),
                BitsOf(used ? twin::LogProb(best[slot].value, norm) : twin::kNan));
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
    const std::vector<RowLogProbs> results = Accumulate(data, SupportedIsas().back(), 2, 7, random);
    for (int64_t row = 0; row < data.rows; ++row) {
      EXPECT_EQ(BitsOf(values[row * 8 + 7]), BitsOf(results[row].chosen_logprob));
      for (size_t slot = 0; slot < results[row].top.size(); ++slot) {
        // Slots past the logits above -inf differ by definition.
        if (ids[row * 8 + slot] == vocab) break;
        EXPECT_EQ(ids[row * 8 + slot], static_cast<uint32_t>(results[row].top[slot].first));
        EXPECT_EQ(BitsOf(values[row * 8 + slot]), BitsOf(results[row].top[slot].second));
      }
    }
  }
}

TEST(LogProbAccumulator, FillsTheTopWithInfinitelyUnlikelyTokensById) {
  const std::vector<float> x = {-kInfinity, 2.0f, -kInfinity, -kInfinity};
  LogProbAccumulator accumulator(Isa::kAvx2, 1, 1, 4, 3);
  const std::vector<int32_t> chosen = {2};
  const std::vector<float> chosen_logits = {-kInfinity};
  accumulator.SetChosen(chosen, chosen_logits);
  accumulator.AddTile(0, MatrixView<const float>(x.data(), 1, 4), 0);
  const RowLogProbs row = accumulator.Finish()[0];
  EXPECT_EQ(row.chosen_logprob, -kInfinity);
  EXPECT_EQ(row.rank, 3);
  const std::vector<std::pair<int32_t, float>> want = {{1, 0.0f}, {0, -kInfinity}, {2, -kInfinity}};
  EXPECT_EQ(row.top, want);
}

TEST(LogProbAccumulator, NeedsNoChosenTokens) {
  std::mt19937 random(24);
  const Rows data(3, 1500, random);
  LogProbAccumulator accumulator(SupportedIsas().back(), 1, 3, 1500, 2);
  accumulator.AddTile(1, MatrixView<const float>(&data.logits[1024], 3, 476, 1500), 0);
  accumulator.AddTile(0, MatrixView<const float>(data.logits.data(), 3, 1024, 1500), 0);
  const RowLogProbs row = accumulator.Finish()[0];
  EXPECT_TRUE(std::isnan(row.chosen_logprob));
  EXPECT_EQ(row.rank, 0);
  EXPECT_EQ(row.top[0].first, twin::Ranking(data.X(0))[0].id);
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

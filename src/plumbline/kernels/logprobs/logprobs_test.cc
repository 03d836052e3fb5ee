#include "plumbline/kernels/logprobs/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>

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

// A ragged batch and room for its results; the margin around outputs must stay as it is.
struct Batch {
  int64_t vocab = 0;
  std::vector<float> logits;
  std::vector<uint32_t> tokens, sampled, logit_rows = {0}, token_rows = {0}, outputs = {0};
  int64_t stride = 0;

  LogProbInputs Inputs() const {
    const int64_t rows = stride == 0 ? 0 : static_cast<int64_t>(logits.size()) / stride;
    return {MatrixView<const float>(logits.data(), rows, vocab, stride),
            tokens,
            sampled,
            logit_rows,
            token_rows,
            outputs};
  }
};

struct Results {
  Results(int64_t rows, int levels)
      : width(int64_t{1} << levels), logits((rows + 1) * (width + 3), kMargin), tokens(logits.size(), 77) {}
  LogProbTensors Tensors() {
    const int64_t rows = static_cast<int64_t>(logits.size()) / (width + 3) - 1;
    return {MatrixView<float>(logits.data() + 1, rows, width, width + 3),
            MatrixView<uint32_t>(tokens.data() + 1, rows, width, width + 3)};
  }
  static constexpr float kMargin = -12345.0f;
  int64_t width;
  std::vector<float> logits;
  std::vector<uint32_t> tokens;
};

Batch RandomBatch(int64_t vocab, bool next_token_only, std::mt19937& random) {
  Batch batch;
  batch.vocab = vocab;
  batch.stride = vocab + random() % 3;
  const int sequences = 1 + random() % 6;
  for (int b = 0; b < sequences; ++b) {
    const uint32_t length = random() % 4 == 0 ? 0 : 1 + random() % 5;
    const uint32_t rows = next_token_only ? 1 : length;
    const uint32_t outputs = length == 0 ? 0 : random() % (rows + 1);
    batch.token_rows.push_back(batch.token_rows.back() + length);
    batch.logit_rows.push_back(batch.logit_rows.back() + rows);
    batch.outputs.push_back(batch.outputs.back() + outputs);
    batch.sampled.push_back(random() % vocab);
  }
  for (uint32_t t = 0; t < batch.token_rows.back(); ++t) batch.tokens.push_back(random() % vocab);
  for (uint32_t r = 0; r < batch.logit_rows.back(); ++r) {
    const std::vector<float> row = Row(kKinds[random() % std::size(kKinds)], batch.stride, random);
    batch.logits.insert(batch.logits.end(), row.begin(), row.end());
  }
  return batch;
}

// Every (logits row, next token) pair of a sequence walked forwards; its outputs are the last of them.
std::vector<std::pair<uint32_t, uint32_t>> EnumeratePositions(const Batch& batch) {
  std::vector<std::pair<uint32_t, uint32_t>> positions;
  for (size_t b = 0; b < batch.sampled.size(); ++b) {
    std::vector<uint32_t> rows, next;
    for (uint32_t r = batch.logit_rows[b]; r < batch.logit_rows[b + 1]; ++r) rows.push_back(r);
    for (uint32_t t = batch.token_rows[b] + 1; t < batch.token_rows[b + 1]; ++t)
      next.push_back(batch.tokens[t]);
    next.push_back(batch.sampled[b]);
    const uint32_t count = batch.outputs[b + 1] - batch.outputs[b];
    for (uint32_t i = 0; i < count; ++i) {
      positions.emplace_back(rows[rows.size() - count + i], next[next.size() - count + i]);
    }
  }
  return positions;
}

void ExpectTwin(const Batch& batch, int levels, Results& results) {
  const ScopedFloatEnv float_env;
  const auto positions = EnumeratePositions(batch);
  const LogProbTensors out = results.Tensors();
  ASSERT_EQ(out.lp_logits.rows, static_cast<int64_t>(positions.size()));
  for (size_t i = 0; i < positions.size(); ++i) {
    const auto [row, token] = positions[i];
    const std::span<const float> x(&batch.logits[row * batch.stride], static_cast<size_t>(batch.vocab));
    const float norm = twin::Norm(x);
    std::vector<TopEntry> best = twin::Ranking(x);
    std::erase_if(best, [](TopEntry e) { return e.value == -kInfinity; });
    const float* values = out.lp_logits.Row(static_cast<int64_t>(i));
    const uint32_t* ids = out.lp_tokens.Row(static_cast<int64_t>(i));
    const size_t width = size_t{1} << levels;
    for (size_t slot = 0; slot + 1 < width; ++slot) {
      const bool used = slot < best.size();
      ASSERT_EQ(ids[slot], used ? static_cast<uint32_t>(best[slot].id) : batch.vocab) << "output " << i;
      ASSERT_EQ(BitsOf(values[slot]), BitsOf(used ? twin::LogProb(best[slot].value, norm) : -kInfinity));
    }
    ASSERT_EQ(ids[width - 1], token);
    ASSERT_EQ(BitsOf(values[width - 1]), BitsOf(twin::LogProb(x[token], norm))) << "output " << i;
    ASSERT_EQ(values[-1], Results::kMargin);
    ASSERT_EQ(values[width], Results::kMargin);
    ASSERT_EQ(ids[-1], 77u);
    ASSERT_EQ(ids[width], 77u);
  }
}

TEST(LogProbabilities, AreTheTwinsOverRandomRaggedBatches) {
  std::mt19937 random(5);
  for (int64_t vocab : {1, 2, 3, 6, 7, 16, 31, 100, 128, 1023, 1024, 1025, 2048, 3100}) {
    for (int round = 0; round < 8; ++round) {
      const Batch batch = RandomBatch(vocab, round % 2 == 0, random);
      for (int levels : {0, 1, 2, 3, 4, 8}) {
        for (Isa isa : SupportedIsas()) {
          const int threads = std::array{1, 2, 3, 5}[random() % 4];
          ThreadPool pool(threads);
          Results results(batch.outputs.back(), levels);
          ASSERT_TRUE(ComputeLogProbabilities({pool, isa}, levels, results.Tensors(), batch.Inputs()));
          ExpectTwin(batch, levels, results);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(LogProbabilities, ALargeVocabularyIsTheTwins) {
  std::mt19937 random(6);
  const Batch batch = RandomBatch(49152, false, random);
  for (Isa isa : SupportedIsas()) {
    for (int threads : {1, 2, 3, 5}) {
      ThreadPool pool(threads);
      Results results(batch.outputs.back(), 3);
      ASSERT_TRUE(ComputeLogProbabilities({pool, isa}, 3, results.Tensors(), batch.Inputs()));
      ExpectTwin(batch, 3, results);
    }
  }
}

TEST(LogProbabilities, OneOutputAtATimeIsTheSame) {
  std::mt19937 random(7);
  Batch batch = RandomBatch(1500, false, random);
  ThreadPool pool(2);
  const Isa isa = SupportedIsas().back();
  Results all(batch.outputs.back(), 2), single(batch.outputs.back(), 2);
  ASSERT_TRUE(ComputeLogProbabilities({pool, isa}, 2, all.Tensors(), batch.Inputs()));
  for (int64_t i = 0; i < batch.outputs.back(); ++i) {
    compute_log_probabilities_1tok<2>(isa, i, single.Tensors(), batch.Inputs());
  }
  EXPECT_EQ(all.tokens, single.tokens);
  for (size_t i = 0; i < all.logits.size(); ++i) EXPECT_EQ(BitsOf(all.logits[i]), BitsOf(single.logits[i]));
}

// The worked examples of the decoder contract, section 3.2.
TEST(LogProbabilities, IndexMapFollowsTheWorkedExamples) {
  const std::vector<uint32_t> tokens = {10, 11, 12, 20, 21}, sampled = {99, 98}, rows = {0, 3, 5},
                              outputs = {0, 3, 4};
  const LogProbInputs in = {{}, tokens, sampled, rows, rows, outputs};
  const int64_t want[4][3] = {{0, 0, 11}, {0, 1, 12}, {0, 2, 99}, {1, 4, 98}};
  for (int64_t i = 0; i < 4; ++i) {
    const OutputPosition position = PositionOf(in, i);
    EXPECT_EQ(position.sequence, want[i][0]);
    EXPECT_EQ(position.logits_row, want[i][1]);
    EXPECT_EQ(position.token, want[i][2]);
  }
  const std::vector<uint32_t> three = {1, 2, 3}, five = {0, 2, 4, 7}, skipping = {0, 2, 2, 5}, seven(7, 0);
  const LogProbInputs skip = {{}, seven, three, five, five, skipping};
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(PositionOf(skip, i).sequence, i < 2 ? 0 : 2);
}

// Ties keep the lowest ids and the columns are sorted, where a heap would keep {1, 3, 4} and leave its own
// order.
TEST(LogProbabilities, TiesKeepTheLowestIds) {
  const std::vector<std::pair<std::vector<float>, std::vector<uint32_t>>> cases = {
      {{1, 1, 1, 2, 2}, {3, 4, 0, 0}},
      {{0, 3, 0, 3}, {1, 3, 0, 0}},
      {{5, 5, 5, 5, 5}, {0, 1, 2, 0}},
      {{0.5f, -kInfinity, -kInfinity}, {0, 3, 3, 0}}};
  ThreadPool pool(1);
  for (const auto& [row, want] : cases) {
    Batch batch;
    batch.vocab = batch.stride = static_cast<int64_t>(row.size());
    batch.logits = row;
    batch.tokens = batch.sampled = {0};
    batch.logit_rows = batch.token_rows = batch.outputs = {0, 1};
    Results results(1, 2);
    const LogProbTensors out = results.Tensors();
    ASSERT_TRUE(ComputeLogProbabilities({pool, Isa::kAvx2}, 2, out, batch.Inputs()));
    EXPECT_EQ(std::vector<uint32_t>(out.lp_tokens.data, out.lp_tokens.data + 4), want);
  }
}

TEST(LogProbabilities, SpecialRows) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ThreadPool pool(1);
  for (Isa isa : SupportedIsas()) {
    for (const std::vector<float>& row :
         {std::vector<float>{1, nan, 2}, {1, kInfinity, 2}, {-kInfinity, -kInfinity, -kInfinity}}) {
      Batch batch;
      batch.vocab = batch.stride = 3;
      batch.logits = row;
      batch.tokens = batch.sampled = {2};
      batch.logit_rows = batch.token_rows = batch.outputs = {0, 1};
      Results results(1, 0);
      ASSERT_TRUE(ComputeLogProbabilities({pool, isa}, 0, results.Tensors(), batch.Inputs()));
      EXPECT_EQ(BitsOf(*results.Tensors().lp_logits.data), 0x7fc00000u);
    }
  }
}

TEST(LogProbabilities, AreWithinTheirRoundingOfDouble) {
  std::mt19937 random(8);
  ThreadPool pool(1);
  double worst = 0.0;
  for (int64_t vocab : {1, 2, 100, 1025, 49152}) {
    Batch batch;
    batch.vocab = batch.stride = vocab;
    for (int64_t v = 0; v < vocab; ++v) {
      batch.logits.push_back(std::uniform_real_distribution<float>(-50.0f, 50.0f)(random));
    }
    batch.tokens = {0};
    batch.sampled = {static_cast<uint32_t>(random() % vocab)};
    batch.logit_rows = batch.token_rows = batch.outputs = {0, 1};
    Results results(1, 4);
    const LogProbTensors out = results.Tensors();
    ASSERT_TRUE(ComputeLogProbabilities({pool, SupportedIsas().back()}, 4, out, batch.Inputs()));
    double max = -100.0, sum = 0.0;
    for (float x : batch.logits) max = std::max(max, double{x});
    for (float x : batch.logits) sum += std::exp(x - max);
    for (int64_t slot = 0; slot < std::min<int64_t>(15, vocab); ++slot) {
      const double want = batch.logits[out.lp_tokens.data[slot]] - (max + std::log(sum));
      worst = std::max(worst, std::abs(out.lp_logits.data[slot] - want));
      // m + log s and the sum with x each round once at a magnitude of at most 64: half an ulp of 2^-18 each.
      EXPECT_NEAR(out.lp_logits.data[slot], want, 0x1p-18 + 1e-6);
    }
    const double chosen = batch.logits[batch.sampled[0]] - (max + std::log(sum));
    EXPECT_NEAR(out.lp_logits.data[15], chosen, 1e-5 * std::max(1.0, std::abs(chosen)));
  }
  RecordProperty("worst_absolute_error", std::to_string(worst));
}

}  // namespace
}  // namespace plumbline

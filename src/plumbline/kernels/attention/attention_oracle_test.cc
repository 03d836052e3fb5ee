// Accuracy against the float64 definition, and scores that are not numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "plumbline/kernels/attention/attention_test_util.h"

namespace plumbline {
namespace {

// Out of one row in float64, from q, k and v as the compute type holds them, and the error the kernel may
// make:
//
//   a score   (head_dim + 2) products and sums, in units of sum |q k| scale; the soft-cap at most doubles it
//   a weight  exp of two scores' difference (2 score errors), a few ulp of exp, and its rounding for the
//   product the rest  64 products of a block, 16 + 4 sums of its weights, 3 roundings a merge
struct Oracle {
  std::vector<double> out, tolerance;
};

Oracle OracleRow(const AttentionTwinRow& row) {
  const double unit = std::ldexp(1.0, -24);
  const int64_t first = row.window > 0 ? std::max<int64_t>(0, row.position - row.window + 1) : 0;
  std::vector<double> scores;
  double score_error = 0, top = row.sink != nullptr ? *row.sink : -HUGE_VAL;
  for (int64_t j = first; j <= row.position; ++j) {
    double dot = 0, magnitude = 0;
    for (int64_t d = 0; d < row.head_dim; ++d) {
      const double product = static_cast<double>(AttentionTwinRound(row.compute, row.q[d])) *
                             AttentionTwinRound(row.compute, row.k[j][d]);
      dot += product;
      magnitude += std::fabs(product);
    }
    double s = dot * row.scale;
    score_error = std::max(score_error, (row.head_dim + 2) * unit * magnitude * row.scale);
    if (row.softcap > 0) {
      s = row.softcap * std::tanh(s / row.softcap);
      score_error = std::max(score_error, 4 * unit * row.softcap + score_error);
    }
    scores.push_back(s);
    top = std::max(top, s);
  }
  double total = row.sink != nullptr ? std::exp(*row.sink - top) : 0.0;
  for (double s : scores) total += std::exp(s - top);
  Oracle oracle{std::vector<double>(row.head_dim, 0.0), std::vector<double>(row.head_dim, 0.0)};
  const double rounding = row.compute == Compute::kBf16 ? std::ldexp(1.0, -8) : 0.0;
  const double blocks = static_cast<double>(row.position / kKeyBlock + 1);
  const double relative = rounding + 4 * score_error + (64 + 20 + 16 + 8 * std::log2(2 * blocks)) * unit;
  for (int64_t d = 0; d < row.head_dim; ++d) {
    for (size_t i = 0; i < scores.size(); ++i) {
      const double v = AttentionTwinRound(row.compute, row.v[first + i][d]);
      oracle.out[d] += std::exp(scores[i] - top) / total * v;
      oracle.tolerance[d] += std::exp(scores[i] - top) / total * std::fabs(v) * relative;
    }
  }
  return oracle;
}

TEST(AttentionOracle, WithinTheDerivedTolerance) {
  const AttentionShape shapes[] = {
      {.head_dim = 64, .group = 3},
      {.head_dim = 64, .group = 3, .compute = Compute::kF32},
      {.head_dim = 80, .window = 100, .sinks = true},
      {.head_dim = 32, .compute = Compute::kF32, .softcap = 3.0f, .scale = 1.0f}};
  for (const AttentionShape& shape : shapes) {
    AttentionWorld world(shape, {MakeSequence(shape, 400, 3)});
    ThreadPool pool(2);
    const StepResult got = world.Step({pool, SupportedIsas().back()}, {{0, 0, 400}});
    double worst = 0;
    size_t at = 0;
    for (int64_t position = 0; position < 400; ++position) {
      for (int64_t head = 0; head < shape.heads(); ++head) {
        const Oracle want = OracleRow(world.TwinRow(0, position, head));
        for (int64_t d = 0; d < shape.head_dim; ++d, ++at) {
          worst = std::max(worst, std::fabs(got.out[at] - want.out[d]) / want.tolerance[d]);
        }
      }
    }
    EXPECT_LT(worst, 1.0) << "share of the tolerance, head_dim " << shape.head_dim;
    EXPECT_GT(worst, 0.001) << "a tolerance that says nothing";
  }
}

// One sequence of 200 whose keys hold `value` at `key`, all heads; queries are positive, so a score has its
// sign.
class AttentionHostile : public ::testing::TestWithParam<Compute> {
 protected:
  AttentionWorld Make(float query, std::vector<std::pair<int64_t, float>> keys) {
    const AttentionShape shape = {
        .head_dim = 8, .kv_heads = 1, .group = 2, .compute = GetParam(), .scale = 1.0f};
    TestSequence sequence = MakeSequence(shape, kLength, 4);
    std::fill(sequence.q.begin(), sequence.q.end(), query);
    for (const auto& [key, value] : keys) std::fill_n(&sequence.k[key * 8], 8, value);
    return AttentionWorld(shape, {sequence});
  }

  StepResult ExpectTwin(AttentionWorld& world) {
    const StepResult want = world.Twin({{0, 0, kLength}});
    ThreadPool pool(2);
    for (Isa isa : SupportedIsas()) {
      const StepResult got = world.Step({pool, isa}, {{0, 0, kLength}});
      EXPECT_TRUE(SameBits(got.out, want.out)) << Name(isa);
      EXPECT_TRUE(SameBits(got.max_logit, want.max_logit)) << Name(isa);
    }
    return want;
  }

  static constexpr int64_t kLength = 200;
};

TEST_P(AttentionHostile, MinusInfiniteScoresHaveNoWeight) {
  std::vector<std::pair<int64_t, float>> keys = {{0, -kAttentionTestInf}, {70, -kAttentionTestInf}};
  for (int64_t key = 128; key < 192; ++key) keys.push_back({key, -kAttentionTestInf});
  AttentionWorld world = Make(1.0f, keys);
  const StepResult result = ExpectTwin(world);
  for (float x : result.out) ASSERT_TRUE(std::isfinite(x));
  for (int i = 0; i < 16; ++i) EXPECT_EQ(std::bit_cast<uint32_t>(result.out[i]), 0u);  // sees key 0 alone
}

TEST_P(AttentionHostile, OnlyMinusInfinity) {
  std::vector<std::pair<int64_t, float>> keys;
  for (int64_t key = 0; key < kLength; ++key) keys.push_back({key, -kAttentionTestInf});
  AttentionWorld world = Make(1.0f, keys);
  const StepResult result = ExpectTwin(world);
  for (float x : result.out) ASSERT_EQ(x, 0.0f);
  for (float x : result.max_logit) ASSERT_EQ(x, -kAttentionTestInf);
}

TEST_P(AttentionHostile, InfinityAndNanReachTheRowsThatSeeThem) {
  for (float value : {kAttentionTestInf, kAttentionTestNan}) {
    AttentionWorld world = Make(1.0f, {{90, value}});
    const StepResult result = ExpectTwin(world);
    for (int64_t i = 0; i < kLength * 16; ++i) ASSERT_EQ(std::isnan(result.out[i]), i >= 90 * 16) << i;
    for (float x : result.max_logit) EXPECT_TRUE(std::isnan(value) ? std::isnan(x) : x == value);
  }
}

TEST_P(AttentionHostile, HugeScores) {
  AttentionWorld world = Make(1e18f, {{3, 1e19f}, {65, -1e19f}, {66, 1e19f}, {131, 2e19f}});
  const StepResult result = ExpectTwin(world);
  for (float x : result.out) ASSERT_TRUE(std::isfinite(x));
  EXPECT_GT(result.max_logit[0], 1e38f);
}

TEST_P(AttentionHostile, ProductsThatUnderflow) {
  for (float even_key : {1e-30f, -1e-30f}) {
    std::vector<std::pair<int64_t, float>> keys;
    for (int64_t key = 0; key < kLength; ++key) keys.push_back({key, key % 2 == 0 ? even_key : -1e-30f});
    AttentionWorld world = Make(1e-20f, keys);
    std::vector<float>& v = world.sequences()[0].v;
    for (size_t i = 0; i < v.size(); ++i) v[i] *= i % 3 == 0 ? 1e-38f : 1e-30f;
    const StepResult result = ExpectTwin(world);
    EXPECT_EQ(std::bit_cast<uint32_t>(result.max_logit[0]), 0u);  // a maximum of -0 is +0
  }
}

TEST_P(AttentionHostile, SinksOfEverySize) {
  for (float sink : {-kAttentionTestInf, -3e38f, 0.0f, 100.0f, 3e38f, kAttentionTestNan}) {
    AttentionShape shape = {.head_dim = 8, .kv_heads = 1, .group = 2, .compute = GetParam(), .sinks = true};
    AttentionWorld world(shape, {MakeSequence(shape, kLength, 4)});
    world.sinks() = {sink, 0.5f};
    const StepResult result = ExpectTwin(world);
    EXPECT_EQ(std::isnan(result.out[0]), std::isnan(sink));
    EXPECT_FALSE(std::isnan(result.out[8]));
    EXPECT_FALSE(std::isnan(result.max_logit[0]));
  }
}

INSTANTIATE_TEST_SUITE_P(Both, AttentionHostile, ::testing::Values(Compute::kBf16, Compute::kF32));

}  // namespace
}  // namespace plumbline

#include "plumbline/kernels/experts/experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "plumbline/base/float_env.h"
#include "plumbline/kernels/experts/experts_twin.h"
#include "plumbline/kernels/guarded_matrix.h"

namespace plumbline {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

bool SameFloat(float a, float b) { return FloatBits(a) == FloatBits(b) || (a != a && b != b); }

struct Chosen {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

Chosen Choose(const KernelContext& context, MatrixView<const float> logits, int64_t k, bool normalize) {
  GuardedMatrix copy(logits.rows, logits.cols), weights(logits.rows, k);
  for (int64_t r = 0; r < logits.rows; ++r) std::copy_n(logits.Row(r), logits.cols, copy.View().Row(r));
  Chosen chosen{.ids = std::vector<int32_t>(logits.rows * k, -7)};
  ChooseExperts(context, copy.View(), normalize, {chosen.ids.data(), logits.rows, k}, weights.View());
  EXPECT_TRUE(copy.BorderIntact() && weights.BorderIntact());
  for (int64_t r = 0; r < logits.rows; ++r)
    chosen.weights.insert(chosen.weights.end(), weights.View().Row(r), weights.View().Row(r) + k);
  return chosen;
}

Chosen Twin(MatrixView<const float> logits, int64_t k, bool normalize) {
  const ScopedFloatEnv env;
  Chosen chosen{std::vector<int32_t>(logits.rows * k), std::vector<float>(logits.rows * k)};
  for (int64_t r = 0; r < logits.rows; ++r)
    TwinChooseExperts(logits.Row(r), logits.cols, k, normalize, &chosen.ids[r * k], &chosen.weights[r * k]);
  return chosen;
}

void ExpectSame(const Chosen& got, const Chosen& want, const std::string& what) {
  ASSERT_EQ(got.ids, want.ids) << what;
  for (size_t i = 0; i < want.weights.size(); ++i)
    ASSERT_TRUE(SameFloat(got.weights[i], want.weights[i])) << what << ", weight " << i;
}

// Logits of few values, so that many are equal, and of many.
TEST(ExpertsTest, ChoiceEqualsItsTwin) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    for (Isa isa : SupportedIsas()) {
      for (int64_t experts : {1, 2, 15, 16, 17, 64, 129}) {
        for (int64_t k : {int64_t{1}, int64_t{2}, int64_t{8}, experts}) {
          if (k > experts) continue;
          for (const bool coarse : {false, true}) {
            GuardedMatrix logits(41, experts, static_cast<uint32_t>(experts + k), 3.0f);
            for (int64_t r = 0; coarse && r < 41; ++r) {
              for (int64_t e = 0; e < experts; ++e)
                logits.View().Row(r)[e] = std::round(logits.View().Row(r)[e]);
            }
            for (const bool normalize : {false, true}) {
              ExpectSame(Choose({pool, isa}, logits.View(), k, normalize), Twin(logits.View(), k, normalize),
                         fmt::format("{} threads, {}, {} of {}", threads, Name(isa), k, experts));
            }
          }
        }
      }
    }
  }
}

TEST(ExpertsTest, TiesGoToTheLowestId) {
  ThreadPool pool(1);
  for (Isa isa : SupportedIsas()) {
    std::vector<float> logits = {1, 2, 1, 2, 2, -kInf, 1};
    const Chosen chosen = Choose({pool, isa}, {logits.data(), 1, 7}, 5, true);
    EXPECT_EQ(chosen.ids, (std::vector<int32_t>{1, 3, 4, 0, 2}));
    EXPECT_EQ(chosen.weights[0], chosen.weights[2]);
    // So far apart that their probabilities are both zero: equal, though the logits are not.
    logits = {-300, 0, -200, -400};
    EXPECT_EQ(Choose({pool, isa}, {logits.data(), 1, 4}, 3, true).ids, (std::vector<int32_t>{1, 0, 2}));
  }
}

TEST(ExpertsTest, NanAndInfinityReachEveryWeightAndChooseRealExperts) {
  ThreadPool pool(1);
  for (Isa isa : SupportedIsas()) {
    for (const float bad : {std::nanf(""), kInf}) {
      for (int at : {0, 3, 18}) {
        std::vector<float> logits(19, 0.5f);
        logits[at] = bad;
        const Chosen chosen = Choose({pool, isa}, {logits.data(), 1, 19}, 4, true);
        for (int i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(chosen.weights[i])) << at;
        std::vector<int32_t> ids = chosen.ids;
        std::ranges::sort(ids);
        EXPECT_TRUE(std::ranges::adjacent_find(ids) == ids.end() && ids.front() >= 0 && ids.back() < 19);
      }
    }
  }
}

TEST(ExpertsTest, WeightsAgainstFloat64) {
  ThreadPool pool(1);
  GuardedMatrix logits(200, 128, 5, 4.0f);
  const Chosen chosen = Choose({pool, SupportedIsas().back()}, logits.View(), 8, true);
  double worst = 0;
  for (int64_t r = 0; r < 200; ++r) {
    double total = 0;
    std::vector<double> e(8);
    for (int i = 0; i < 8; ++i) total += e[i] = std::exp(double{logits.View().Row(r)[chosen.ids[r * 8 + i]]});
    for (int i = 0; i < 8; ++i)
      worst = std::max(worst, std::abs(chosen.weights[r * 8 + i] / (e[i] / total) - 1));
  }
  EXPECT_LT(worst, 1e-6);
}

TEST(ExpertsTest, CombinationEqualsItsTwin) {
  for (int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    for (Isa isa : SupportedIsas()) {
      for (int64_t cols : {1, 15, 16, 17, 333}) {
        for (int64_t k : {1, 2, 8}) {
          const int64_t rows = 37;
          GuardedMatrix outputs(rows * k, cols, 3), weights(rows, k, 4), out(rows, cols, 5);
          std::vector<int32_t> slots(rows * k);
          std::iota(slots.begin(), slots.end(), 0);
          std::shuffle(slots.begin(), slots.end(), std::mt19937(6));
          for (const bool accumulate : {false, true}) {
            GuardedMatrix before(rows, cols, 5);
            CombineExperts({pool, isa}, weights.View(), outputs.View(), slots, accumulate, before.View());
            const ScopedFloatEnv env;
            for (int64_t r = 0; r < rows; ++r) {
              for (int64_t c = 0; c < cols; ++c) {
                std::vector<float> y(k);
                for (int64_t i = 0; i < k; ++i) y[i] = outputs.View().Row(slots[r * k + i])[c];
                const float sum = TwinCombineExperts(weights.View().Row(r), y.data(), k);
                const float want = accumulate ? out.View().Row(r)[c] + sum : sum;
                ASSERT_TRUE(SameFloat(before.View().Row(r)[c], want)) << Name(isa) << " " << cols << " " << k;
              }
            }
            EXPECT_TRUE(before.BorderIntact());
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace plumbline

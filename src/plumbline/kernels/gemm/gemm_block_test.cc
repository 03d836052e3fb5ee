// Parts of a matmul give the bits of the whole, and rows do not see each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <limits>

#include "plumbline/base/float_env.h"
#include "plumbline/kernels/gemm/gemm.h"
#include "plumbline/kernels/gemm/gemm_testing.h"
#include "plumbline/kernels/gemm/gemm_twin.h"

namespace plumbline {
namespace {

using namespace gemm_testing;  // NOLINT(google-build-using-namespace)

Matrix Multiply(const KernelContext& context, const PackedWeight& weight, MatrixView<const float> x) {
  PackedActivations activations;
  EXPECT_TRUE(activations.Pack(context, x, weight.compute()).has_value());
  Matrix y(x.rows, weight.n());
  const GemmJob job = {.weight = &weight, .y = y.view};
  Gemm(context, activations, {&job, 1});
  return y;
}

class GemmParts : public testing::TestWithParam<DType> {};

TEST_P(GemmParts, BlocksEqualTheWhole) {
  const int64_t k = 768, n = 200, m = 41;
  const Weight weight = RandomWeight(GetParam(), n, k, 1);
  const Matrix x = RandomMatrix(m, k, 2);
  for (const Isa isa : SupportedIsas()) {
    for (const Compute compute : kComputes) {
      ThreadPool pool(1);
      const KernelContext context = {pool, isa};
      const PackedWeight packed = PackedWeight::Pack(context, weight.tensor, compute, 256).value();
      const Matrix whole = Multiply(context, packed, x.view);
      PackedActivations activations;
      ASSERT_TRUE(activations.Pack(context, x.view, compute).has_value());
      GemmScratch scratch;
      ScopedFloatEnv env;
      constexpr int64_t kParts[][4] = {{0, 41, 0, 200}, {0, 1, 0, 200},   {40, 41, 192, 200},
                                       {5, 9, 32, 39},  {11, 30, 64, 96}, {2, 4, 160, 200},
                                       {7, 7, 0, 32},   {20, 41, 96, 113}};
      for (const auto& [r0, r1, c0, c1] : kParts) {
        Matrix part(r1 - r0, c1 - c0);
        GemmBlock(isa, activations, r0, r1, packed, c0, c1, part.view, scratch);
        const MatrixView<const float> want(whole.view.Row(r0) + c0, r1 - r0, c1 - c0, whole.view.stride);
        ASSERT_EQ(FirstDifference(part.view, want), "")
            << Name(isa) << " rows from " << r0 << " columns from " << c0;
        for (int64_t r = 0; r < r1 - r0; ++r) ASSERT_EQ(part.view.Row(r)[c1 - c0], -7.5f);
      }
    }
  }
}

TEST_P(GemmParts, ARowIsTheSameInAnyBatch) {
  const int64_t k = 512, n = 70;
  const Weight weight = RandomWeight(GetParam(), n, k, 3);
  Matrix x = RandomMatrix(67, k, 4);
  for (const Isa isa : SupportedIsas()) {
    ThreadPool pool(3);
    const KernelContext context = {pool, isa};
    const PackedWeight packed = PackedWeight::Pack(context, weight.tensor, Compute::kBf16, 256).value();
    const Matrix whole = Multiply(context, packed, x.view);
    for (const int64_t row : {0, 13, 66}) {
      const Matrix alone = Multiply(context, packed, x.view.Rows(row, 1));
      EXPECT_EQ(FirstDifference(alone.view, whole.view.Rows(row, 1)), "");
    }
    const Matrix some = Multiply(context, packed, x.view.Rows(9, 17));
    EXPECT_EQ(FirstDifference(some.view, whole.view.Rows(9, 17)), "");
  }
}

TEST_P(GemmParts, NanAndInfinityStayInTheirRow) {
  const int64_t k = 256, n = 40, m = 14;
  const Weight weight = RandomWeight(GetParam(), n, k, 5);
  const Matrix clean = RandomMatrix(m, k, 6);
  Matrix dirty = RandomMatrix(m, k, 6);
  dirty.view.Row(3)[17] = std::numeric_limits<float>::quiet_NaN();
  dirty.view.Row(8)[255] = std::numeric_limits<float>::infinity();
  for (const Isa isa : SupportedIsas()) {
    ThreadPool pool(2);
    const KernelContext context = {pool, isa};
    const PackedWeight packed = PackedWeight::Pack(context, weight.tensor, Compute::kBf16, 256).value();
    const Matrix want = Multiply(context, packed, clean.view);
    const Matrix got = Multiply(context, packed, dirty.view);
    for (int64_t r = 0; r < m; ++r) {
      if (r == 3) {
        for (int64_t c = 0; c < n; ++c) EXPECT_TRUE(std::isnan(got.view.Row(r)[c]));
      } else if (r == 8) {
        for (int64_t c = 0; c < n; ++c) EXPECT_FALSE(std::isfinite(got.view.Row(r)[c]));
      } else {
        EXPECT_EQ(FirstDifference(got.view.Rows(r, 1), want.view.Rows(r, 1)), "") << r;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryFormat, GemmParts, testing::ValuesIn(kWeightTypes),
                         [](const auto& info) { return std::string(Info(info.param).name); });

TEST(Gemm, JobsOfDifferentFormatsShareOneCall) {
  const int64_t k = 256, m = 9;
  const Matrix x = RandomMatrix(m, k, 7);
  for (const Isa isa : SupportedIsas()) {
    ThreadPool pool(3);
    const KernelContext context = {pool, isa};
    std::vector<PackedWeight> weights;
    for (const auto& [dtype, n] : {std::pair{DType::kQ4_1, 100}, {DType::kBF16, 33}, {DType::kQ6_K, 64}}) {
      const Weight weight = RandomWeight(dtype, n, k, 8);
      weights.push_back(PackedWeight::Pack(context, weight.tensor, Compute::kBf16, 256).value());
    }
    PackedActivations activations;
    ASSERT_TRUE(activations.Pack(context, x.view, Compute::kBf16).has_value());
    std::vector<Matrix> got;
    std::vector<GemmJob> jobs;
    for (const PackedWeight& weight : weights) got.emplace_back(m, weight.n());
    for (size_t i = 0; i < weights.size(); ++i) jobs.push_back({.weight = &weights[i], .y = got[i].view});
    Gemm(context, activations, jobs);
    for (size_t i = 0; i < weights.size(); ++i) {
      EXPECT_EQ(FirstDifference(got[i].view, Multiply(context, weights[i], x.view).view), "");
    }
  }
}

// |result - exact| <= gamma * sum |w x|: a chain of `leaf` fused multiply-adds, then log2(leaves) additions.
TEST(Gemm, StaysWithinTheDerivedErrorOfFloat64) {
  const int64_t m = 5, n = 64;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ4_1, DType::kQ6_K}) {
    for (const Compute compute : kComputes) {
      for (const int64_t k : {256, 1536, 8192}) {
        const Weight weight = RandomWeight(dtype, n, k, 9);
        const Matrix x = RandomMatrix(m, k, 10);
        ThreadPool pool(2);
        const KernelContext context = {pool, SupportedIsas().back()};
        const PackedWeight packed = PackedWeight::Pack(context, weight.tensor, compute, 256).value();
        const Matrix got = Multiply(context, packed, x.view);
        const std::vector<float> values = gemm_twin::WeightValues(weight.tensor, compute);
        const double depth = 256 + std::ceil(std::log2(static_cast<double>(k) / 256));
        const double gamma = depth * (FLT_EPSILON / 2) / (1 - depth * (FLT_EPSILON / 2));
        double worst = 0;
        for (int64_t r = 0; r < m; ++r) {
          for (int64_t c = 0; c < n; ++c) {
            double exact = 0, magnitude = 0;
            for (int64_t i = 0; i < k; ++i) {
              const double term =
                  static_cast<double>(values[c * k + i]) * gemm_twin::Round(x.view.Row(r)[i], compute);
              exact += term;
              magnitude += std::fabs(term);
            }
            worst = std::max(worst, std::fabs(got.view.Row(r)[c] - exact) / (gamma * magnitude));
          }
        }
        EXPECT_LE(worst, 1.0) << Info(dtype).name << " " << Name(compute) << " k " << k;
        EXPECT_GT(worst, 0.0);
      }
    }
  }
}

}  // namespace
}  // namespace plumbline

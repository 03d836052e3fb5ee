#include "plumbline/kernels/logits/logits_transform.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "plumbline/base/float_env.h"
#include "plumbline/kernels/logits/logits_transform_twin.h"

namespace plumbline {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kMargin = -98765.0f;

struct Form {
  float scaling;
  std::optional<float> softcap;
};
constexpr Form kForms[] = {{1.0f, {}}, {0.125f, {}}, {3.0f, {}}, {1.0f, 30.0f}, {8.0f, 15.5f}, {-2.0f, 0.7f}};

std::vector<float> RandomLogits(int64_t count, std::mt19937& random) {
  const float special[] = {0.0f,   -0.0f, kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(),
                           1e-42f, 3e38f};
  std::normal_distribution<float> normal(0.0f, 20.0f);
  std::vector<float> x(static_cast<size_t>(count));
  for (float& value : x) value = random() % 16 == 0 ? special[random() % std::size(special)] : normal(random);
  return x;
}

bool Same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

TEST(ScaleAndSoftcap, IsTheTwinAndTouchesNothingElse) {
  std::mt19937 random(1);
  const ScopedFloatEnv float_env;
  for (Isa isa : SupportedIsas()) {
    for (const Form& form : kForms) {
      for (int64_t cols : {0, 1, 3, 15, 16, 17, 32, 100}) {
        for (int64_t unpadded : {int64_t{0}, int64_t{40}, 40 + cols / 2, 40 + cols, int64_t{1000}}) {
          const int64_t rows = 3, stride = cols + 3;
          const std::vector<float> before = RandomLogits(rows * stride + 1, random);
          std::vector<float> after = before;
          ScaleAndSoftcap(isa, MatrixView<float>(&after[1], rows, cols, stride), form.scaling, form.softcap,
                          40, unpadded);
          for (int64_t i = -1; i < rows * stride; ++i) {
            const bool inside = i >= 0 && i % stride < cols;
            const float want = inside ? TransformLogitTwin(before[1 + i], form.scaling, form.softcap,
                                                           40 + i % stride, unpadded)
                                      : before[1 + i];
            ASSERT_TRUE(Same(after[1 + i], want))
                << Name(isa) << " at " << i << ": " << after[1 + i] << " " << want;
          }
        }
      }
    }
  }
}

TEST(ScaleAndSoftcap, ScalesFirstAndMasksLast) {
  for (Isa isa : SupportedIsas()) {
    std::vector<float> x = {60.0f, -kInfinity, 7.0f, kMargin};
    ScaleAndSoftcap(isa, MatrixView<float>(x.data(), 1, 3), 2.0f, 30.0f, 10, 12);
    EXPECT_NEAR(x[0], 30.0 * std::tanh(1.0), 1e-5);
    EXPECT_EQ(x[1], -30.0f);
    EXPECT_EQ(x[2], -kInfinity);
    EXPECT_EQ(x[3], kMargin);
  }
}

// Two divisions, tanh within 2 ulp and a product: at most 4 ulp of float32 where tanh is not flat, less where
// it is.
TEST(ScaleAndSoftcap, IsWithinFourUlpOfDouble) {
  double worst = 0.0;
  std::vector<float> x;
  for (int i = -4000; i <= 4000; ++i) x.push_back(static_cast<float>(i) * 0.031f);
  std::vector<float> y = x;
  ScaleAndSoftcap(SupportedIsas().back(), MatrixView<float>(y.data(), 1, static_cast<int64_t>(y.size())),
                  1.7f, 30.0f, 0, static_cast<int64_t>(y.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] == 0.0f) continue;
    const double want = 30.0 * std::tanh(x[i] / double{1.7f} / 30.0);
    const double ulp = std::ldexp(1.0, std::ilogb(want) - 23);
    worst = std::max(worst, std::abs(y[i] - want) / ulp);
  }
  EXPECT_LE(worst, 4.0);
}

}  // namespace
}  // namespace plumbline

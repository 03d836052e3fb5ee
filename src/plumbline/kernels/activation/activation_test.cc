#include "plumbline/kernels/activation/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "plumbline/base/float_env.h"
#include "plumbline/kernels/activation/activation_twin.h"
#include "plumbline/kernels/guarded_matrix.h"

namespace plumbline {
namespace {

constexpr Activation kActivations[] = {Activation::kSilu, Activation::kGeluTanh};

bool SameFloat(float a, float b) { return FloatBits(a) == FloatBits(b) || (a != a && b != b); }

TEST(ActivationTest, EqualsItsTwin) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    for (Isa isa : SupportedIsas()) {
      for (int64_t rows : {1, 3, 40}) {
        for (int64_t cols : {1, 15, 16, 17, 104, 333}) {
          for (Activation activation : kActivations) {
            GuardedMatrix gate(rows, cols, 1, 4.0f), up(rows, cols, 2), out(rows, cols);
            const KernelContext context{pool, isa};
            GatedActivation(context, activation, gate.View(), up.View(), out.View());
            for (int64_t r = 0; r < rows; ++r) {
              for (int64_t i = 0; i < cols; ++i) {
                const ScopedFloatEnv env;
                const float want =
                    TwinGatedActivation(activation, gate.View().Row(r)[i], up.View().Row(r)[i]);
                ASSERT_TRUE(SameFloat(out.View().Row(r)[i], want))
                    << Name(isa) << " " << rows << " x " << cols;
              }
            }
            EXPECT_TRUE(out.BorderIntact());
            GatedActivation(context, activation, gate.View(), up.View(), gate.View());
            for (int64_t r = 0; r < rows; ++r) {
              for (int64_t i = 0; i < cols; ++i) {
                ASSERT_TRUE(SameFloat(gate.View().Row(r)[i], out.View().Row(r)[i]));
              }
            }
            EXPECT_TRUE(gate.BorderIntact());
          }
        }
      }
    }
  }
}

// Floats of every exponent and sign, and infinities and NaN among them.
TEST(ActivationTest, EqualsItsTwinOverAllExponents) {
  constexpr int64_t kCount = (int64_t{1} << 32) / 65521;
  GuardedMatrix gate(1, kCount), up(1, kCount), out(1, kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    gate.View().data[i] = std::bit_cast<float>(static_cast<uint32_t>(i * 65521));
    up.View().data[i] = 1.0f;
  }
  gate.View().data[5] = std::numeric_limits<float>::infinity();
  gate.View().data[6] = -std::numeric_limits<float>::infinity();
  ThreadPool pool(1);
  for (Isa isa : SupportedIsas()) {
    for (Activation activation : kActivations) {
      GatedActivation({pool, isa}, activation, gate.View(), up.View(), out.View());
      for (int64_t i = 0; i < kCount; ++i) {
        const ScopedFloatEnv env;
        const float want = TwinGatedActivation(activation, gate.View().data[i], 1.0f);
        ASSERT_TRUE(SameFloat(out.View().data[i], want)) << Name(isa) << " " << gate.View().data[i];
      }
    }
  }
}

// silu: exp (1.5 ulp, less what the sum with 1 hides), a sum, a quotient. gelu: near the negative end 1 +
// tanh cancels, so the error there is 1.5 ulp of 1 times |x| / 2.
TEST(ActivationTest, CloseToFloat64) {
  double worst_silu = 0.0, worst_gelu = 0.0;
  for (float x = -80.0f; x < 80.0f; x += 0.00137f) {
    float silu, gelu;
    {
      const ScopedFloatEnv env;
      silu = TwinGatedActivation(Activation::kSilu, x, 1.0f);
      gelu = TwinGatedActivation(Activation::kGeluTanh, x, 1.0f);
    }
    const double v = x;
    const double want_silu = v / (1.0 + std::exp(-v));
    const double want_gelu = 0.5 * v * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (v + 0.044715 * v * v * v)));
    worst_silu = std::max(worst_silu, std::fabs(silu - want_silu) / std::fabs(want_silu) * 0x1p24);
    worst_gelu = std::max(
        worst_gelu, std::fabs(gelu - want_gelu) / std::max(std::fabs(v), std::fabs(want_gelu)) * 0x1p24);
  }
  std::printf("silu: %.2f half-ulps; gelu: %.2f half-ulps of x\n", worst_silu, worst_gelu);
  EXPECT_LT(worst_silu, 5.0);
  EXPECT_LT(worst_gelu, 4.0);
}

TEST(ActivationTest, SpecialValues) {
  const ScopedFloatEnv env;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (Activation activation : kActivations) {
    EXPECT_EQ(TwinGatedActivation(activation, 0.0f, 1.0f), 0.0f);
    EXPECT_EQ(TwinGatedActivation(activation, 1e20f, 1.0f), 1e20f);
    EXPECT_EQ(FloatBits(TwinGatedActivation(activation, -1e20f, 1.0f)), FloatBits(-0.0f));
    EXPECT_EQ(TwinGatedActivation(activation, kInf, 1.0f), kInf);
    EXPECT_TRUE(std::isnan(TwinGatedActivation(activation, -kInf, 1.0f)));
    EXPECT_TRUE(std::isnan(TwinGatedActivation(activation, std::numeric_limits<float>::quiet_NaN(), 1.0f)));
  }
}

TEST(ActivationTest, ParsesHuggingFaceNames) {
  EXPECT_EQ(ParseActivation("silu"), Activation::kSilu);
  EXPECT_EQ(ParseActivation("swish"), Activation::kSilu);
  EXPECT_EQ(ParseActivation("gelu_pytorch_tanh"), Activation::kGeluTanh);
  EXPECT_EQ(ParseActivation("gelu_new"), Activation::kGeluTanh);
  EXPECT_EQ(ParseActivation("gelu"), std::nullopt);
  EXPECT_EQ(ParseActivation(""), std::nullopt);
}

}  // namespace
}  // namespace plumbline

// exp, log, tanh: lanes against scalars bit for bit, both against float64.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "plumbline/base/float_env.h"
#include "plumbline/base/isa.h"
#include "plumbline/kernels/math/scalar_math.h"
#include "plumbline/kernels/simd/find_vector_op.h"

namespace plumbline {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t ToBits(float x) { return std::bit_cast<uint32_t>(x); }

// Error of `got` in units of the last place of `want`; 0 where both are the same infinity or both NaN.
double UlpError(float got, double want) {
  const auto rounded = static_cast<float>(want);
  if (got == rounded || (got != got && want != want)) return 0.0;
  if (std::isinf(rounded) || !std::isfinite(got)) return 1e30;
  int exponent;
  std::frexp(want, &exponent);
  return std::fabs(static_cast<double>(got) - want) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

struct Function {
  const char* name;
  float (*scalar)(float);
  double (*oracle)(double);
  double max_ulp;
};

const Function kFunctions[] = {
    {"exp", ExpF, std::exp, 1.8},
    {"log", LogF, std::log, 1.0},
    {"tanh", TanhF, std::tanh, 1.6},
};

double FlushedOracle(const Function& function, float x) {
  if (std::fabs(x) < std::numeric_limits<float>::min()) x = std::copysign(0.0f, x);
  const double y = function.oracle(x);
  return std::fabs(y) < std::numeric_limits<float>::min() ? std::copysign(0.0, y) : y;
}

// One float in `step` of all 2^32, in every exponent and both signs.
std::vector<uint32_t> Sweep(uint32_t step) {
  std::vector<uint32_t> bits;
  for (uint64_t i = 0; i < (uint64_t{1} << 32); i += step) bits.push_back(static_cast<uint32_t>(i));
  for (float special : {0.0f, -0.0f, 1.0f, -1.0f, kInf, -kInf, kNaN, 0.625f, 88.722839f, 88.72284f, 88.375f,
                        -87.336544f, -87.33655f, -88.0f, 1e-45f, -1e-45f}) {
    bits.push_back(ToBits(special));
  }
  bits.resize((bits.size() + 15) / 16 * 16);
  return bits;
}

TEST(MathTest, LanesEqualScalars) {
  const std::vector<uint32_t> x = Sweep(1021);
  std::vector<uint32_t> got(x.size());
  for (Isa isa : SupportedIsas()) {
    for (const Function& function : kFunctions) {
      const VectorOp* op = FindVectorOp(isa, function.name);
      ASSERT_NE(op, nullptr);
      const ScopedFloatEnv env;
      op->run(x.data(), x.data(), x.data(), got.data(), static_cast<int64_t>(x.size()));
      for (size_t i = 0; i < x.size(); ++i) {
        const float want = function.scalar(FromBits(x[i]));
        if (want != want && FromBits(got[i]) != FromBits(got[i])) continue;
        ASSERT_EQ(got[i], ToBits(want)) << Name(isa) << " " << function.name << "(" << FromBits(x[i]) << ")";
      }
    }
  }
}

TEST(MathTest, CloseToFloat64) {
  for (const Function& function : kFunctions) {
    double worst = 0.0;
    float worst_x = 0.0f;
    for (uint32_t bits : Sweep(509)) {
      const float x = FromBits(bits);
      float y;
      {
        const ScopedFloatEnv env;
        y = function.scalar(x);
      }
      const double error = UlpError(y, FlushedOracle(function, x));
      if (error > worst) {
        worst = error;
        worst_x = x;
      }
    }
    std::printf("%s: %.4f ulp at %.9g\n", function.name, worst, worst_x);
    EXPECT_LT(worst, function.max_ulp) << function.name << "(" << worst_x << ")";
  }
}

// The last third of an octave below the largest float is where exp's polynomial is farthest from its centre:
// every float there. Elsewhere it is better.
TEST(MathTest, ExpUpToTheLargestFloat) {
  const auto worst_in = [](float low, float high, uint32_t step) {
    double worst = 0.0;
    for (uint32_t bits = ToBits(low); bits <= ToBits(high); bits += step) {
      const ScopedFloatEnv env;
      worst = std::max(worst, UlpError(ExpF(FromBits(bits)), std::exp(static_cast<double>(FromBits(bits)))));
    }
    return worst;
  };
  EXPECT_LT(worst_in(88.37f, 88.72283f, 1), 1.8);
  EXPECT_LT(worst_in(1e-3f, 88.37f, 97), 1.3);
  EXPECT_LT(worst_in(-1e-3f, -87.33f, 97), 1.3);
}

TEST(MathTest, SpecialValues) {
  const ScopedFloatEnv env;
  EXPECT_EQ(ToBits(ExpF(0.0f)), ToBits(1.0f));
  EXPECT_EQ(ToBits(ExpF(-0.0f)), ToBits(1.0f));
  EXPECT_EQ(ToBits(ExpF(-kInf)), ToBits(0.0f));
  EXPECT_EQ(ToBits(ExpF(-87.4f)), ToBits(0.0f));
  EXPECT_EQ(ToBits(ExpF(-1e30f)), ToBits(0.0f));
  EXPECT_EQ(ExpF(kInf), kInf);
  EXPECT_EQ(ExpF(88.8f), kInf);
  EXPECT_EQ(ExpF(1e30f), kInf);
  EXPECT_LT(ExpF(88.72283f), kInf);
  EXPECT_TRUE(std::isnan(ExpF(kNaN)));
  EXPECT_EQ(ToBits(LogF(1.0f)), ToBits(0.0f));
  for (float zero : {0.0f, -0.0f, 1e-40f, -1e-40f}) EXPECT_EQ(LogF(zero), -kInf);
  EXPECT_EQ(LogF(kInf), kInf);
  EXPECT_TRUE(std::isnan(LogF(-1.0f)));
  EXPECT_TRUE(std::isnan(LogF(-kInf)));
  EXPECT_TRUE(std::isnan(LogF(kNaN)));
  EXPECT_EQ(ToBits(TanhF(0.0f)), ToBits(0.0f));
  EXPECT_EQ(ToBits(TanhF(-0.0f)), ToBits(-0.0f));
  EXPECT_EQ(TanhF(kInf), 1.0f);
  EXPECT_EQ(TanhF(-kInf), -1.0f);
  EXPECT_EQ(TanhF(-10.0f), -1.0f);
  EXPECT_TRUE(std::isnan(TanhF(kNaN)));
  for (uint32_t bits : Sweep(65521)) {
    const float x = FromBits(bits & 0x7fffffffu);
    if (x != x) continue;
    ASSERT_EQ(ToBits(TanhF(-x)), ToBits(TanhF(x)) ^ 0x80000000u) << x;
  }
}

// The compiler may evaluate these calls, outside any environment; so must the results hold without one.
TEST(MathTest, DenormalsAreZerosInAnyEnvironment) {
  volatile float below_range = -87.4f;
  volatile float denormal = -1e-40f;
  EXPECT_EQ(ToBits(ExpF(below_range)), ToBits(0.0f));
  EXPECT_EQ(LogF(denormal), -kInf);
  EXPECT_EQ(ToBits(TanhF(denormal)), ToBits(-0.0f));
  EXPECT_EQ(ToBits(ExpF(-87.4f)), ToBits(0.0f));
  EXPECT_EQ(LogF(-1e-40f), -kInf);
  EXPECT_EQ(ToBits(TanhF(-1e-40f)), ToBits(-0.0f));
}

// Relative error of the float64 functions in units of 2^-53, over `count` points of [low, high].
template <typename Fn, typename Oracle>
double WorstD(double low, double high, int count, Fn fn, Oracle oracle) {
  double worst = 0.0;
  for (int i = 0; i < count; ++i) {
    const double x = low + (high - low) * (i + 0.37) / count;
    const double want = oracle(x);
    worst = std::max(worst, std::fabs(fn(x) - want) / std::fabs(want) * 0x1p53);
  }
  return worst;
}

double SinOf(double x) {
  double s, c;
  SinCosD(x, &s, &c);
  return s;
}

double CosOf(double x) {
  double s, c;
  SinCosD(x, &s, &c);
  return c;
}

TEST(MathTest, Float64Functions) {
  const ScopedFloatEnv env;
  const auto exp = [](double x) { return std::exp(x); };
  const auto log = [](double x) { return std::log(x); };
  const auto sin = [](double x) { return std::sin(x); };
  const auto cos = [](double x) { return std::cos(x); };
  EXPECT_LT(WorstD(-1.0, 1.0, 200000, ExpD, exp), 3.0);
  EXPECT_LT(WorstD(-708.0, 709.7, 200000, ExpD, exp), 3.0);
  EXPECT_LT(WorstD(0.1, 3.0, 200000, LogD, log), 3.0);
  EXPECT_LT(WorstD(1.0, 1e9, 200000, LogD, log), 3.0);
  for (double range : {1.0, 10.0, 1e4, 1e6, 0x1p31}) {
    EXPECT_LT(WorstD(-range, range, 100000, SinOf, sin), 3.0) << range;
    EXPECT_LT(WorstD(-range, range, 100000, CosOf, cos), 3.0) << range;
  }
  EXPECT_EQ(ExpD(0.0), 1.0);
  EXPECT_EQ(ExpD(-std::numeric_limits<double>::infinity()), 0.0);
  EXPECT_EQ(ExpD(710.0), std::numeric_limits<double>::infinity());
  EXPECT_EQ(LogD(1.0), 0.0);
  EXPECT_EQ(LogD(0.0), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(LogD(-1.0)));
  EXPECT_TRUE(std::isnan(SinOf(0x1p40)));
  EXPECT_EQ(CosOf(0.0), 1.0);
  EXPECT_EQ(SinOf(0.0), 0.0);
}

// Floats nearest to multiples of pi / 2, where sin or cos is smallest.
TEST(MathTest, SinCosNearItsZeros) {
  const ScopedFloatEnv env;
  for (int n = 1; n < 1000000; n += 7) {
    const auto x = static_cast<double>(static_cast<float>(n * 1.5707963267948966));
    ASSERT_LE(std::fabs(SinOf(x) - std::sin(x)), 4e-16 * std::fabs(std::sin(x))) << x;
    ASSERT_LE(std::fabs(CosOf(x) - std::cos(x)), 4e-16 * std::fabs(std::cos(x))) << x;
  }
}

}  // namespace
}  // namespace plumbline

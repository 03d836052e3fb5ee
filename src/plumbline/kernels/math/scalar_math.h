// The project's own elementary functions for single numbers; no libm, so results do not depend on the
// machine.
//
// float32: the scalar twins of simd/vmath.h, operation for operation, equal to every lane bit for bit. At
// most 2 ulp from the true value.
//
// float64: for tables made at load time; at most 2 ulp.
//
// Call all of them under ScopedFloatEnv. The float32 functions treat denormals as zeros by explicit
// comparison as well: a compiler that evaluates a call with a constant argument knows nothing of that
// environment.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "plumbline/kernels/math/coefficients.h"

namespace plumbline {

// exp(0) = 1 exactly; exp(-inf) = +0; exp(inf) = inf; NaN stays NaN; results below 2^-126 are +0.
inline float ExpF(float x) {
  namespace c = coefficients;
  x = c::kExpLowest > x ? c::kExpLowest : x;
  float t = std::fma(x, c::kLog2E, c::kExpMagic);
  t = c::kExpMagicMax < t ? c::kExpMagicMax : t;
  const float n = t - c::kExpMagic;
  float r = std::fma(n, -c::kLn2High, x);
  r = std::fma(n, -c::kLn2Low, r);
  float p = std::fma(c::kExp6, r, c::kExp5);
  p = std::fma(p, r, c::kExp4);
  p = std::fma(p, r, c::kExp3);
  p = std::fma(p, r, c::kExp2);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, r, 1.0f);
  const float y = p * std::bit_cast<float>(std::bit_cast<uint32_t>(t) << 23);
  return y < std::numeric_limits<float>::min() ? 0.0f : y;
}

// log(1) = +0 exactly; log(+-0) and of denormals = -inf; log(x < 0) = NaN; log(inf) = inf; NaN stays NaN.
inline float LogF(float x) {
  namespace c = coefficients;
  if (std::fabs(x) < std::numeric_limits<float>::min()) return -std::numeric_limits<float>::infinity();
  if (x < 0.0f) return std::numeric_limits<float>::quiet_NaN();
  if (!(x < std::numeric_limits<float>::infinity())) return x + x;
  const int32_t bits = std::bit_cast<int32_t>(x);
  const int32_t exponent = (bits - c::kSqrtHalfBits) >> 23;
  const auto e = static_cast<float>(exponent);
  const float f = std::bit_cast<float>(bits - exponent * (1 << 23)) - 1.0f;
  const float square = f * f;
  float p = std::fma(c::kLog10, f, c::kLog9);
  p = std::fma(p, f, c::kLog8);
  p = std::fma(p, f, c::kLog7);
  p = std::fma(p, f, c::kLog6);
  p = std::fma(p, f, c::kLog5);
  p = std::fma(p, f, c::kLog4);
  p = std::fma(p, f, c::kLog3);
  float y = std::fma(p * f, square, e * c::kLn2Low);
  y = std::fma(-0.5f, square, y);
  return std::fma(e, c::kLn2High, f + y);
}

// Odd: tanh(-x) = -tanh(x) in every bit; +-1 from |x| of about 9; a denormal gives a zero of its sign; NaN
// stays NaN.
inline float TanhF(float x) {
  namespace c = coefficients;
  const float a = std::fabs(x);
  float y;
  if (a < std::numeric_limits<float>::min()) {
    y = 0.0f;
  } else if (a < c::kTanhSmall) {
    const float square = a * a;
    float p = std::fma(c::kTanh11, square, c::kTanh9);
    p = std::fma(p, square, c::kTanh7);
    p = std::fma(p, square, c::kTanh5);
    p = std::fma(p, square, c::kTanh3);
    y = std::fma(p * square, a, a);
  } else {
    y = 1.0f - 2.0f / (ExpF(a + a) + 1.0f);
  }
  return std::copysign(y, x);
}

// exp(-inf) = +0, exp(inf) = inf; NaN stays NaN; results below 2^-1022 are +0.
double ExpD(double x);

// log(+-0) and of denormals = -inf; log(x < 0) = NaN; log(inf) = inf; NaN stays NaN.
double LogD(double x);

// sin and cos of x radians, |x| <= 2^31 (the whole range of an int32 position); NaN beyond.
void SinCosD(double x, double* sin, double* cos);

}  // namespace plumbline

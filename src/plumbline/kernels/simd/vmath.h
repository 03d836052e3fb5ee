// exp, log and tanh of sixteen float32 lanes, for *_isa.cc files. Every instruction set runs the same
// sequence of IEEE operations, the one math/scalar_math.h writes out for a single float, so lane and scalar
// agree bit for bit. At most 2 ulp from the true value; flush-to-zero and denormals-are-zero must be on
// (base/float_env.h).
#pragma once

#include "plumbline/kernels/math/coefficients.h"
#include "plumbline/kernels/simd/vec16.h"

namespace plumbline::PLUMBLINE_ISA {

// exp(0) = 1 exactly; exp(-inf) = +0; exp(inf) = inf; NaN stays NaN; results below 2^-126 are +0.
//
// n = nearest integer to x / log 2, at most 127;  r = x - n log 2;  exp(x) = exp(r) 2^n. Capping n at 127
// keeps 2^n a float (r then reaches log 2, where the polynomial still holds); 2^-127 comes out as zero.
static inline F32x16 Exp(F32x16 x) {
  namespace c = coefficients;
  x = MaxPs(Set(c::kExpLowest), x);
  const F32x16 t = MinPs(Set(c::kExpMagicMax), Fma(x, Set(c::kLog2E), Set(c::kExpMagic)));
  const F32x16 n = t - Set(c::kExpMagic);
  F32x16 r = Fma(n, Set(-c::kLn2High), x);
  r = Fma(n, Set(-c::kLn2Low), r);
  F32x16 p = Fma(Set(c::kExp6), r, Set(c::kExp5));
  p = Fma(p, r, Set(c::kExp4));
  p = Fma(p, r, Set(c::kExp3));
  p = Fma(p, r, Set(c::kExp2));
  p = Fma(p, r, Set(1.0f));
  p = Fma(p, r, Set(1.0f));
  return p * AsF32(ShiftLeft<23>(AsI32(t)));
}

// log(1) = +0 exactly; log(+-0) and of denormals = -inf; log(x < 0) = NaN; log(inf) = inf; NaN stays NaN.
//
// x = (1 + f) 2^e with 1 + f in [sqrt(1/2), sqrt(2)).
static inline F32x16 Log(F32x16 x) {
  namespace c = coefficients;
  const I32x16 exponent = ShiftRightArith<23>(AsI32(x) - SetI(c::kSqrtHalfBits));
  const F32x16 e = ToF32(exponent);
  const F32x16 f = AsF32(AsI32(x) - ShiftLeft<23>(exponent)) - Set(1.0f);
  const F32x16 square = f * f;
  F32x16 p = Fma(Set(c::kLog10), f, Set(c::kLog9));
  p = Fma(p, f, Set(c::kLog8));
  p = Fma(p, f, Set(c::kLog7));
  p = Fma(p, f, Set(c::kLog6));
  p = Fma(p, f, Set(c::kLog5));
  p = Fma(p, f, Set(c::kLog4));
  p = Fma(p, f, Set(c::kLog3));
  F32x16 y = Fma(p * f, square, e * Set(c::kLn2Low));
  y = Fma(Set(-0.5f), square, y);
  y = Fma(e, Set(c::kLn2High), f + y);
  const F32x16 infinity = AsF32(SetI(0x7f800000));
  y = Select(x < infinity, y, x + x);
  y = Select(x < Zero(), AsF32(SetI(0x7fc00000)), y);
  return Select(x == Zero(), AsF32(SetI(static_cast<int32_t>(0xff800000u))), y);
}

// Odd: tanh(-x) = -tanh(x) in every bit; +-1 from |x| of about 9; a denormal gives a zero of its sign; NaN
// stays NaN.
//
// |x| < 0.625: the polynomial; otherwise 1 - 2 / (exp(2 |x|) + 1).
static inline F32x16 Tanh(F32x16 x) {
  namespace c = coefficients;
  const I32x16 sign_bit = SetI(static_cast<int32_t>(0x80000000u));
  const I32x16 sign = AsI32(x) & sign_bit;
  const F32x16 a = AsF32(AsI32(x) ^ sign);
  const F32x16 square = a * a;
  F32x16 p = Fma(Set(c::kTanh11), square, Set(c::kTanh9));
  p = Fma(p, square, Set(c::kTanh7));
  p = Fma(p, square, Set(c::kTanh5));
  p = Fma(p, square, Set(c::kTanh3));
  const F32x16 small = Fma(p * square, a, a);
  const F32x16 large = Set(1.0f) - Set(2.0f) / (Exp(a + a) + Set(1.0f));
  return AsF32(AsI32(Select(a < Set(c::kTanhSmall), small, large)) | sign);
}

}  // namespace plumbline::PLUMBLINE_ISA

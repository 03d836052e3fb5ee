// The numbers behind the float32 elementary functions, shared by the vector code (simd/vmath.h) and its
// scalar twins (math/scalar_math.h). Plain constants, safe to include in *_isa.cc files.
//
// Polynomials are least-maximum-error fits (relative to the function's value), rounded to float32 one
// coefficient at a time, lowest power first, with the rest fitted again after each.
#pragma once

namespace plumbline::coefficients {

// log 2 in two parts: the first has 16 significant bits, so its product with an exponent is exact.
inline constexpr float kLn2High = 0x1.62e4p-1f;
inline constexpr float kLn2Low = 0x1.7f7d1cp-20f;
inline constexpr float kLog2E = 0x1.715476p+0f;

// exp(r) = 1 + r (1 + r (c2 + r (c3 + ...))). Error 2.8e-08 for |r| <= log(2) / 2, 5.7e-08 up to log(2).
inline constexpr float kExp2 = 0x1.000042p-1f;
inline constexpr float kExp3 = 0x1.5555f2p-3f;
inline constexpr float kExp4 = 0x1.54fc9cp-5f;
inline constexpr float kExp5 = 0x1.11592ap-7f;
inline constexpr float kExp6 = 0x1.a3f164p-10f;
// Below this exp(x) is less than 2^-126, and x / log 2 rounds to -127.
inline constexpr float kExpLowest = -88.0f;
// Adding kExpMagic to |n| <= 2^22 rounds it to an integer and leaves n + 127 in the low bits.
inline constexpr float kExpMagic = 12582912.0f + 127.0f;
inline constexpr float kExpMagicMax = kExpMagic + 127.0f;

// log(1 + f) = f - f^2 / 2 + f^3 (c3 + c4 f + ...). Error 6e-9 for sqrt(1/2) - 1 <= f <= sqrt(2) - 1.
inline constexpr float kLog3 = 0x1.555554p-2f;
inline constexpr float kLog4 = -0x1.000228p-2f;
inline constexpr float kLog5 = 0x1.99a02ap-3f;
inline constexpr float kLog6 = -0x1.54720ep-3f;
inline constexpr float kLog7 = 0x1.22d744p-3f;
inline constexpr float kLog8 = -0x1.0d84d2p-3f;
inline constexpr float kLog9 = 0x1.056eb6p-3f;
inline constexpr float kLog10 = -0x1.38e676p-4f;
inline constexpr int kSqrtHalfBits = 0x3f3504f3;

// tanh(x) = x + x^3 (c3 + c5 x^2 + ...). Error 5e-9 for |x| <= kTanhSmall.
inline constexpr float kTanh3 = -0x1.55553p-2f;
inline constexpr float kTanh5 = 0x1.110684p-3f;
inline constexpr float kTanh7 = -0x1.b82628p-5f;
inline constexpr float kTanh9 = 0x1.51904p-6f;
inline constexpr float kTanh11 = -0x1.732bdp-8f;
inline constexpr float kTanhSmall = 0.625f;

}  // namespace plumbline::coefficients

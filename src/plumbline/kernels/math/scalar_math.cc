#include "plumbline/kernels/math/scalar_math.h"

#include <array>

namespace plumbline {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kMinNormal = std::numeric_limits<double>::min();

// log 2 in two parts, the first of 42 bits: its product with an exponent is exact.
constexpr double kLn2High = 0x1.62e42fefa3800p-1;
constexpr double kLn2Low = 0x1.ef35793c76730p-45;
constexpr double kLog2E = 0x1.71547652b82fep+0;

// pi / 2 in three parts of full precision.
constexpr double kHalfPi1 = 0x1.921fb54442d18p+0;
constexpr double kHalfPi2 = 0x1.1a62633145c07p-54;
constexpr double kHalfPi3 = -0x1.f1976b7ed8fbcp-110;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;

double PowerOfTwo(int64_t n) { return std::bit_cast<double>(static_cast<uint64_t>(n + 1023) << 52); }

// exp(r) for |r| <= log(2) / 2: 1 + r (1 + r / 2 (1 + r / 3 (...))) to r^13.
double ExpSeries(double r) {
  double p = 1.0;
  for (int k = 13; k >= 2; --k) p = std::fma(p, r / k, 1.0);
  return std::fma(p, r, 1.0);
}

// Taylor coefficients: kInverseFactorial[k] = 1 / k!.
constexpr int kTerms = 19;
constexpr auto kInverseFactorial = [] {
  std::array<double, kTerms> inverse{};
  double factorial = 1.0;  // exact up to 18!
  for (int k = 0; k < kTerms; ++k) {
    if (k > 0) factorial *= k;
    inverse[static_cast<size_t>(k)] = 1.0 / factorial;
  }
  return inverse;
}();

// sin(r) for |r| <= pi / 4: r - r^3 / 3! + ... + r^17 / 17!.
double SinSeries(double r) {
  const double minus_square = -r * r;
  double p = kInverseFactorial[17];
  for (size_t k = 15; k >= 3; k -= 2) p = std::fma(p, minus_square, kInverseFactorial[k]);
  return std::fma(p * minus_square, r, r);
}

// cos(r) for |r| <= pi / 4: 1 - r^2 / 2! + ... - r^18 / 18!.
double CosSeries(double r) {
  const double minus_square = -r * r;
  double p = kInverseFactorial[18];
  for (size_t k = 16; k >= 2; k -= 2) p = std::fma(p, minus_square, kInverseFactorial[k]);
  return std::fma(p, minus_square, 1.0);
}

}  // namespace

double ExpD(double x) {
  if (x != x) return x + x;
  if (x > 709.79) return kInfinity;
  if (x < -708.4) return 0.0;
  const double n = std::nearbyint(x * kLog2E);
  const double r = std::fma(n, -kLn2Low, std::fma(n, -kLn2High, x));
  // Two factors, because 2^1024 is no float64; flush to zero takes care of the other end.
  const auto whole = static_cast<int64_t>(n);
  const int64_t half = whole / 2;
  return ExpSeries(r) * PowerOfTwo(half) * PowerOfTwo(whole - half);
}

double LogD(double x) {
  if (x != x) return x + x;
  if (std::fabs(x) < kMinNormal) return -kInfinity;
  if (x < 0.0) return kNaN;
  if (x == kInfinity) return x;
  constexpr int64_t kSqrtHalfBits = 0x3fe6a09e667f3bcd;
  const auto bits = std::bit_cast<int64_t>(x);
  const int64_t exponent = (bits - kSqrtHalfBits) >> 52;
  const auto e = static_cast<double>(exponent);
  // log(1 + f) = 2 s + 2 s^3 / 3 + 2 s^5 / 5 + ..., s = f / (2 + f), |s| <= 0.172. With `tail` = the series
  // after its first term, over s: 2 s + s tail = f - (f^2 / 2 - s (f^2 / 2 + tail)), whose first term is
  // exact.
  const double f = std::bit_cast<double>(bits - exponent * (int64_t{1} << 52)) - 1.0;
  const double s = f / (2.0 + f);
  const double square = s * s;
  double tail = 0.0;
  for (int k = 21; k >= 3; k -= 2) tail = std::fma(tail, square, 2.0 / k);
  tail *= square;
  const double half_square = 0.5 * f * f;
  const double correction = half_square - std::fma(s, half_square + tail, e * kLn2Low);
  return std::fma(e, kLn2High, f - correction);
}

void SinCosD(double x, double* sin, double* cos) {
  if (!(std::fabs(x) <= 0x1p31)) {
    *sin = *cos = kNaN;
    return;
  }
  const double n = std::nearbyint(x * kTwoOverPi);
  double r = std::fma(n, -kHalfPi1, x);
  r = std::fma(n, -kHalfPi2, r);
  r = std::fma(n, -kHalfPi3, r);
  const double s = SinSeries(r);
  const double c = CosSeries(r);
  switch (static_cast<int64_t>(n) & 3) {
    case 0:
      *sin = s;
      *cos = c;
      break;
    case 1:
      *sin = c;
      *cos = -s;
      break;
    case 2:
      *sin = -s;
      *cos = -c;
      break;
    default:
      *sin = -c;
      *cos = s;
      break;
  }
}

}  // namespace plumbline

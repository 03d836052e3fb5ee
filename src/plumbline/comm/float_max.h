// The maximum of AllReduceMax: NaN wins, as the quiet NaN; +0 is above -0, so the order of operands never
// shows.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace plumbline {

// Integers in the order of the floats: -inf lowest, NaN (all of them one) highest.
inline int32_t OrderedBits(float x) {
  if (std::isnan(x)) return std::numeric_limits<int32_t>::max();
  const auto bits = std::bit_cast<int32_t>(x);
  return bits < 0 ? bits ^ 0x7fffffff : bits;
}

inline float FromOrderedBits(int32_t bits) {
  if (bits == std::numeric_limits<int32_t>::max()) return std::bit_cast<float>(uint32_t{0x7fc00000});
  return std::bit_cast<float>(bits < 0 ? bits ^ 0x7fffffff : bits);
}

inline float MaxOf(float a, float b) {
  const int32_t x = OrderedBits(a);
  const int32_t y = OrderedBits(b);
  return FromOrderedBits(x > y ? x : y);
}

}  // namespace plumbline

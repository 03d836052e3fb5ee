// The definitions of rotary.h one element at a time, for tests. Call them under ScopedFloatEnv.
#pragma once

#include <cmath>
#include <cstdint>

namespace plumbline {

// cos, sin [half]; x [head_dim >= 2 half] in place.
inline void TwinRotateHead(const float* cos, const float* sin, int64_t half, float* x) {
  for (int64_t i = 0; i < half; ++i) {
    const float first = x[i];
    const float second = x[i + half];
    const float first_cos = first * cos[i];
    const float second_cos = second * cos[i];
    x[i] = std::fma(-second, sin[i], first_cos);
    x[i + half] = std::fma(first, sin[i], second_cos);
  }
}

}  // namespace plumbline

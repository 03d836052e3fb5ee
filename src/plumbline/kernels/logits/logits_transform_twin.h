// The logits transform one number at a time. Call under ScopedFloatEnv. For tests.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "plumbline/kernels/math/scalar_math.h"

namespace plumbline {

inline float TransformLogitTwin(float x, float logits_scaling, std::optional<float> softcap, int64_t id,
                                int64_t unpadded_vocab) {
  if (logits_scaling != 1.0f) x = x / logits_scaling;
  if (softcap) x = TanhF(x / *softcap) * *softcap;
  if (id >= unpadded_vocab) x = -std::numeric_limits<float>::infinity();
  return x;
}

}  // namespace plumbline

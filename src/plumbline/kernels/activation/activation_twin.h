// The definitions of activation.h for one element, for tests. Call them under ScopedFloatEnv.
#pragma once

#include <cmath>

#include "plumbline/kernels/activation/activation.h"
#include "plumbline/kernels/math/scalar_math.h"

namespace plumbline {

inline float TwinGatedActivation(Activation activation, float gate, float up) {
  if (activation == Activation::kSilu) {
    const float denominator = 1.0f + ExpF(-gate);
    const float silu = gate / denominator;
    return silu * up;
  }
  const float square = gate * gate;
  const float inner = std::fma(0.044715f * square, gate, gate);
  const float one_plus_tanh = 1.0f + TanhF(0.7978845608f * inner);
  const float half = 0.5f * gate;
  return (half * one_plus_tanh) * up;
}

}  // namespace plumbline

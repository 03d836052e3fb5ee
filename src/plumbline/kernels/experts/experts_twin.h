// The definitions of experts.h for one row, for tests. Call them under ScopedFloatEnv.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "plumbline/kernels/math/scalar_math.h"
#include "plumbline/kernels/norm/norm_twin.h"

namespace plumbline {

inline void TwinChooseExperts(const float* logits, int64_t experts, int64_t k, bool normalize, int32_t* ids,
                              float* weights) {
  float most = -std::numeric_limits<float>::infinity();
  for (int64_t e = 0; e < experts; ++e) most = logits[e] > most || logits[e] != logits[e] ? logits[e] : most;
  std::vector<float> p(experts);
  for (int64_t e = 0; e < experts; ++e) p[e] = ExpF(logits[e] - most);
  const float sum = TwinLaneSum(p.data(), experts, [](float acc, float v) { return acc + v; });
  for (float& value : p) value = value / sum;
  std::vector<int32_t> order(experts);
  for (int64_t e = 0; e < experts; ++e) order[e] = static_cast<int32_t>(e);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return p[a] > p[b]; });
  float total = p[order[0]];
  for (int64_t i = 1; i < k; ++i) total = total + p[order[i]];
  for (int64_t i = 0; i < k; ++i) {
    ids[i] = order[i];
    weights[i] = normalize ? p[order[i]] / total : p[order[i]];
  }
}

// One element of a row: y[i] is what the i-th chosen expert gave.
inline float TwinCombineExperts(const float* weights, const float* y, int64_t k) {
  float acc = 0.0f;
  for (int64_t i = 0; i < k; ++i) acc = std::fma(weights[i], y[i], acc);
  return acc;
}

}  // namespace plumbline

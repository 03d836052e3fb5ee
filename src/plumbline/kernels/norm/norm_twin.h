// The definitions of norm.h one element at a time, for tests. Call them under ScopedFloatEnv.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

namespace plumbline {

// Lane t folds fold(acc, element) over the elements with index % 16 == t in ascending order; then the lane
// tree.
template <typename Fold>
float TwinLaneSum(const float* x, int64_t cols, Fold fold) {
  std::vector<float> level(16, 0.0f);
  for (int64_t i = 0; i < cols; ++i)
    level[static_cast<size_t>(i % 16)] = fold(level[static_cast<size_t>(i % 16)], x[i]);
  while (level.size() > 1) {
    std::vector<float> next;
    for (size_t i = 0; i < level.size(); i += 2) next.push_back(level[i] + level[i + 1]);
    level = next;
  }
  return level[0];
}

inline void TwinRmsNorm(const float* x, const float* weight, float eps, int64_t cols, float* y) {
  const float sum = TwinLaneSum(x, cols, [](float acc, float v) { return std::fma(v, v, acc); });
  const float scale = 1.0f / std::sqrt(sum / static_cast<float>(cols) + eps);
  for (int64_t i = 0; i < cols; ++i) {
    const float normalised = x[i] * scale;
    y[i] = normalised * weight[i];
  }
}

// bias may be null.
inline void TwinLayerNorm(const float* x, const float* weight, const float* bias, float eps, int64_t cols,
                          float* y) {
  const float mean =
      TwinLaneSum(x, cols, [](float acc, float v) { return acc + v; }) / static_cast<float>(cols);
  const float sum = TwinLaneSum(x, cols, [mean](float acc, float v) {
    const float d = v - mean;
    return std::fma(d, d, acc);
  });
  const float scale = 1.0f / std::sqrt(sum / static_cast<float>(cols) + eps);
  for (int64_t i = 0; i < cols; ++i) {
    const float centred = x[i] - mean;
    const float normalised = centred * scale;
    y[i] = bias != nullptr ? std::fma(normalised, weight[i], bias[i]) : normalised * weight[i];
  }
}

}  // namespace plumbline

// The numbers of one row of logits as the numerics contract defines them, written for reading, not for speed.
// Call under ScopedFloatEnv. For tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "plumbline/kernels/logprobs/top_k.h"
#include "plumbline/kernels/math/scalar_math.h"

namespace plumbline::logprobs_twin {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Stats {
  float m, s;
};

inline float MaxNan(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return kNan;
  return a > b ? a : b;
}

inline Stats TileStats(std::span<const float> x) {
  Stats stats = {-kInfinity, 0.0f};
  for (float v : x) stats.m = MaxNan(stats.m, v);
  if (stats.m == -kInfinity) return stats;
  float lane[16] = {};
  for (size_t i = 0; i < x.size(); ++i) lane[i % 16] = lane[i % 16] + ExpF(x[i] - stats.m);
  for (int width = 8; width >= 1; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] = lane[2 * i] + lane[2 * i + 1];
  }
  stats.s = lane[0];
  return stats;
}

inline Stats Merge(Stats a, Stats b) {
  if (a.m == -kInfinity) return b;
  if (b.m == -kInfinity) return a;
  const float m = MaxNan(a.m, b.m);
  return {m, std::fma(b.s, ExpF(b.m - m), a.s * ExpF(a.m - m))};
}

// node(level, index) of the tree over tiles of 1024.
inline Stats Node(std::span<const float> x, int level, size_t index) {
  const size_t first = (index << level) * 1024;
  if (level == 0) return TileStats(x.subspan(first, std::min<size_t>(1024, x.size() - first)));
  const size_t right = ((2 * index + 1) << (level - 1)) * 1024;
  if (right >= x.size()) return Node(x, level - 1, 2 * index);
  return Merge(Node(x, level - 1, 2 * index), Node(x, level - 1, 2 * index + 1));
}

inline float Norm(std::span<const float> x) {
  int level = 0;
  while ((size_t{1024} << level) < x.size()) ++level;
  const Stats stats = Node(x, level, 0);
  return -(stats.m + LogF(stats.s));
}

inline float LogProb(float x, float norm) { return std::isnan(x + norm) ? kNan : x + norm; }

// Every logit that is not NaN, best first.
inline std::vector<TopEntry> Ranking(std::span<const float> x) {
  std::vector<TopEntry> all;
  for (size_t v = 0; v < x.size(); ++v) {
    if (!std::isnan(x[v])) all.push_back({x[v], static_cast<int32_t>(v)});
  }
  std::stable_sort(all.begin(), all.end(), [](TopEntry a, TopEntry b) { return a.value > b.value; });
  return all;
}

inline int64_t Rank(std::span<const float> x, int64_t chosen) {
  int64_t rank = 1;
  for (int64_t v = 0; v < static_cast<int64_t>(x.size()); ++v) {
    if (x[v] > x[chosen] || (x[v] == x[chosen] && v < chosen)) ++rank;
  }
  return rank;
}

}  // namespace plumbline::logprobs_twin

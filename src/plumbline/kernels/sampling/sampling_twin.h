// Sampling as sampling.h lists its steps, over every token, with full sorts. Inputs are good. Call under
// ScopedFloatEnv. For tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <vector>

#include "plumbline/base/philox.h"
#include "plumbline/kernels/math/scalar_math.h"
#include "plumbline/kernels/sampling/sampling.h"

namespace plumbline::sampling_twin {

struct Candidate {
  float value;
  int32_t id;
  float weight = 0.0f;
};

inline std::vector<Candidate> Sorted(std::span<const float> logits, std::span<const int32_t> history,
                                     float penalty, float temperature) {
  const std::set<int32_t> seen(history.begin(), history.end());
  std::vector<Candidate> all;
  for (int32_t id = 0; id < static_cast<int32_t>(logits.size()); ++id) {
    float x = logits[id];
    if (seen.contains(id)) x = x > 0.0f ? x / penalty : x * penalty;
    all.push_back({x / temperature, id});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.value > b.value; });
  return all;
}

// The candidates that every step leaves, with their weights.
inline std::vector<Candidate> Kept(std::span<const float> logits, std::span<const int32_t> history,
                                   const SamplingOptions& options) {
  std::vector<Candidate> kept = Sorted(logits, history, options.repetition_penalty, options.temperature);
  if (options.top_k > 0 && kept.size() > static_cast<size_t>(options.top_k)) kept.resize(options.top_k);
  const float max = kept[0].value;
  float total = 0.0f;
  for (Candidate& candidate : kept) {
    candidate.weight = ExpF(candidate.value - max);
    total = total + candidate.weight;
  }
  if (options.top_p < 1.0f) {
    size_t count = 0;
    for (float sum = 0.0f; count == 0 || sum < options.top_p * total; ++count) sum = sum + kept[count].weight;
    kept.resize(count);
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    if (kept[i].weight < options.min_p) kept.resize(i);
  }
  return kept;
}

inline int32_t Sample(std::span<const float> logits, std::span<const int32_t> history, int64_t position,
                      const SamplingOptions& options) {
  if (options.temperature == 0.0f) return Sorted(logits, history, options.repetition_penalty, 1.0f)[0].id;
  const std::vector<Candidate> kept = Kept(logits, history, options);
  float total = 0.0f;
  for (const Candidate& candidate : kept) total = total + candidate.weight;
  const uint64_t counter = static_cast<uint64_t>(position);
  const uint32_t word = Philox4x32(
      {static_cast<uint32_t>(options.seed & 0xffffffff), static_cast<uint32_t>(options.seed >> 32)},
      {static_cast<uint32_t>(counter & 0xffffffff), static_cast<uint32_t>(counter >> 32), 0, 0})[0];
  const float bar = UniformFloat(word) * total;
  float sum = 0.0f;
  for (const Candidate& candidate : kept) {
    sum = sum + candidate.weight;
    if (sum > bar) return candidate.id;
  }
  return -1;
}

}  // namespace plumbline::sampling_twin

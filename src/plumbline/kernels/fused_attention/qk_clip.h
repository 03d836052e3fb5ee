// QK-Clip: factors by which a trainer multiplies the query and key projections after a step, from the maximum
// logit of every head and a threshold tau (Kimi K2, arXiv 2507.20534, section 2.1).
//
//   gamma[h] = tau / max_logit[h] where max_logit[h] > tau, 1 otherwise
//
// The maximum here is signed: a head whose logits are all negative, one that saw nothing (-inf) and one that
// is not a number (NaN, +inf, which no factor mends) keep their weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "plumbline/base/check.h"

namespace plumbline {

inline float QkClipGamma(float max_logit, float tau) {
  return std::isfinite(max_logit) && tau > 0.0f && max_logit > tau ? tau / max_logit : 1.0f;
}

// Every head has its own keys: W_q and W_k of head h both times factor[h], and its logits times gamma[h].
// All arrays [heads]; factor may be max_logit.
inline void QkClipMha(std::span<const float> max_logit, float tau, std::span<float> factor) {
  PLUMBLINE_CHECK(max_logit.size() == factor.size());
  for (size_t h = 0; h < factor.size(); ++h) factor[h] = std::sqrt(QkClipGamma(max_logit[h], tau));
}

// Where a key head serves a group of query heads: kQuery leaves keys alone and clips each head by itself,
// q[h] = gamma[h], k[g] = 1; kGroup clips a whole group by its largest maximum, q[h] = k[g] = sqrt(the least
// gamma of the group).
enum class QkClipGqaBy : uint8_t { kQuery, kGroup };

// q [heads], k [kv_heads]; kv_heads divides heads.
inline void QkClipGqa(std::span<const float> max_logit, float tau, QkClipGqaBy by, std::span<float> q,
                      std::span<float> k) {
  PLUMBLINE_CHECK(max_logit.size() == q.size() && !k.empty() && q.size() % k.size() == 0);
  const size_t group = q.size() / k.size();
  for (size_t g = 0; g < k.size(); ++g) {
    float least = 1.0f;
    for (size_t h = g * group; h < (g + 1) * group; ++h) {
      q[h] = QkClipGamma(max_logit[h], tau);
      least = std::min(least, q[h]);
    }
    k[g] = by == QkClipGqaBy::kQuery ? 1.0f : std::sqrt(least);
    if (by == QkClipGqaBy::kGroup) std::fill_n(q.begin() + static_cast<int64_t>(g * group), group, k[g]);
  }
}

// Multi-head latent attention: the parts of q and k without rotary embedding times sqrt(gamma), the rotary
// part of q, which every head has to itself, times gamma; the rotary part of k is shared and stays.
struct QkClipMlaFactors {
  float q_nope = 1.0f;
  float k_nope = 1.0f;
  float q_rope = 1.0f;
};

// factors [heads].
inline void QkClipMla(std::span<const float> max_logit, float tau, std::span<QkClipMlaFactors> factors) {
  PLUMBLINE_CHECK(max_logit.size() == factors.size());
  for (size_t h = 0; h < factors.size(); ++h) {
    const float gamma = QkClipGamma(max_logit[h], tau), root = std::sqrt(gamma);
    factors[h] = {.q_nope = root, .k_nope = root, .q_rope = gamma};
  }
}

}  // namespace plumbline

// Choosing the next token from a row of logits. Everything is float32 in a fixed order; randomness is
// Philox4x32-10 keyed by (seed, position), so a choice does not depend on batch, thread or rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plumbline/base/status.h"

namespace plumbline {

struct SamplingOptions {
  float temperature = 0.0f;         // 0: greedy
  int32_t top_k = 0;                // 0: no limit
  float top_p = 1.0f;               // (0, 1]
  float min_p = 0.0f;               // [0, 1]: keep p >= min_p * p_max
  float repetition_penalty = 1.0f;  // > 0: x > 0 ? x / r : x * r for tokens already seen (Keskar et al. 2019)
  uint64_t seed = 0;
};

Status CheckSamplingOptions(const SamplingOptions& options);

// Returns the token for absolute position `position`. `logits` [vocab] is left untouched; `history` are the
// tokens of the sequence so far (for the penalty). Order: penalty, temperature, top-k, top-p, min-p, as Hugging
// Face transformers applies its warpers; candidates ordered by (value descending, id ascending). Scratch is reused
// between calls. All-NaN or all -inf rows are an error.
struct SamplingScratch {
  std::vector<float> values;
  std::vector<int32_t> order;
};
Result<int32_t> SampleToken(std::span<const float> logits, std::span<const int32_t> history, int64_t position,
                            const SamplingOptions& options, SamplingScratch& scratch);

}  // namespace plumbline

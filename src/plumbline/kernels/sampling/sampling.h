// Choosing the next token from a row of logits. Everything is float32 in a fixed order; randomness is
// Philox4x32-10 keyed by (seed, position), so a choice does not depend on batch, thread or rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plumbline/base/status.h"

namespace plumbline {

struct SamplingOptions {
  float temperature = 0.0f;         // >= 0; 0: greedy
  int32_t top_k = 0;                // >= 0; 0: no limit
  float top_p = 1.0f;               // (0, 1]
  float min_p = 0.0f;               // [0, 1]: keep p >= min_p * p_max
  float repetition_penalty = 1.0f;  // > 0: x > 0 ? x / r : x * r for tokens already seen (Keskar et al. 2019)
  uint64_t seed = 0;
};

// Each option within its range and finite; errors name the option.
Status CheckSamplingOptions(const SamplingOptions& options);

// Memory that is reused between calls.
struct SamplingScratch {
  std::vector<float> values;    // logits after penalty and temperature
  std::vector<uint64_t> keys;   // candidates first; their order as integers is their order
  std::vector<uint64_t> spare;  // for sorting them
  std::vector<float> sums;      // of the candidates' weights, cumulative
};

// Returns the token for absolute position `position`. `logits` [vocab] is left untouched; `history` are the
// tokens of the sequence so far (for the penalty; each counts once). Candidates are ordered by (value
// descending, id ascending). In the order of Hugging Face transformers' warpers:
//
//   1. penalty, then greedy (temperature 0) takes the first candidate: no random number;
//   2. x <- x / temperature; where that takes the maximum out of float32's range, the first candidate;
//   3. top-k keeps exactly k candidates (of several equal to the k-th the lowest ids; transformers keeps
//   all);
//   4. weights w = exp(x - x_max), c = their cumulative sum in the order of candidates; top-p < 1 keeps the
//   shortest
//      prefix with c >= top_p c_last;
//   5. min-p keeps the prefix before the first w < min_p (the first w is 1);
//   6. with u the uniform of Philox4x32(key = seed low, high; counter = position low, high, 0, 0), the first
//      candidate with c > u c_last.
//
// Errors: no logits, a NaN or +inf logit, none above -inf, a history id outside the vocabulary, and those of
// CheckSamplingOptions.
Result<int32_t> SampleToken(std::span<const float> logits, std::span<const int32_t> history, int64_t position,
                            const SamplingOptions& options, SamplingScratch& scratch);

}  // namespace plumbline

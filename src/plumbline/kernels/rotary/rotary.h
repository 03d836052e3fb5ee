// Rotary position embedding (Su et al. 2021), the half-split ("NeoX") form: element i of a head's first half
// is paired with element i of its second half.
//
//   angle = float32(position) * inv_freq[i]
//   out[i]        = x[i] * cos(angle) - x[i + half] * sin(angle)
//   out[i + half] = x[i + half] * cos(angle) + x[i] * sin(angle)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plumbline/base/status.h"
#include "plumbline/kernels/kernel_context.h"
#include "plumbline/tensor/matrix.h"

namespace plumbline {

struct RopeScaling {
  enum class Type : uint8_t { kNone, kLinear, kLlama3, kYarn };
  Type type = Type::kNone;
  double factor = 1.0;
  // kLlama3
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  double original_max_position = 8192;  // kLlama3 and kYarn
  // kYarn
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double attention_factor = 0.0;  // 0: 0.1 ln(factor) + 1
  bool truncate = true;
};

struct RopeFrequencies {
  std::vector<float> inv_freq;    // [rotary_dim / 2]
  float attention_factor = 1.0f;  // multiplies cos and sin (YaRN)
};

// inv_freq[i] = theta^(-2 i / rotary_dim), then the scaling, as Hugging Face transformers' ROPE_INIT_FUNCTIONS
// define them; computed in float64 by the project's own functions, rounded once.
RopeFrequencies MakeRopeFrequencies(int64_t rotary_dim, double theta, const RopeScaling& scaling);

// cos and sin of each position, shared by all layers of a step: tables [tokens, rotary_dim / 2] float32.
void RopeTables(const KernelContext& context, const RopeFrequencies& frequencies,
                std::span<const int32_t> positions, MatrixView<float> cos, MatrixView<float> sin);

// Rotates the first 2 * cos.cols elements of each head of x [tokens, heads * head_dim] in place.
void ApplyRope(const KernelContext& context, MatrixView<const float> cos, MatrixView<const float> sin,
               int64_t head_dim, MatrixView<float> x);

}  // namespace plumbline

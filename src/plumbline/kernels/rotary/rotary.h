// Rotary position embedding (Su et al. 2021), the half-split ("NeoX") form: element i of a head's first half
// is paired with element i of its second half.
//
//   angle = float32(position) * inv_freq[i], rounded to float32
//   c = cos(angle) * attention_factor,  s = sin(angle) * attention_factor
//   out[i]        = x[i] * c - x[i + half] * s    as fma(-x[i + half], s, x[i] * c)
//   out[i + half] = x[i + half] * c + x[i] * s    as fma(x[i], s, x[i + half] * c)
//
// cos and sin are float64 results for the float32 angle, rounded to float32 once, then multiplied in float32.
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
  double attention_factor = 0.0;  // 0: 0.1 ln(factor) + 1, or 1 where factor <= 1
  bool truncate = true;
};

struct RopeFrequencies {
  std::vector<float> inv_freq;    // [rotary_dim / 2]
  float attention_factor = 1.0f;  // multiplies cos and sin (YaRN)
};

// What MakeRopeFrequencies needs: rotary_dim even and positive, theta > 1, factors, rotation counts and
// lengths finite and positive, low_freq_factor < high_freq_factor, beta_slow < beta_fast. For values from a
// configuration.
Status ValidateRope(int64_t rotary_dim, double theta, const RopeScaling& scaling);

// inv_freq[i] = theta^(-2 i / rotary_dim), then the scaling, as Hugging Face transformers'
// ROPE_INIT_FUNCTIONS define them, every step in float32 as there: far positions multiply the difference.
// Only the power itself is computed in float64, by the project's own functions, and rounded once. The
// arguments pass ValidateRope.
RopeFrequencies MakeRopeFrequencies(int64_t rotary_dim, double theta, const RopeScaling& scaling);

// inv_freq[i] /= factors[i] in float32, one factor for each frequency (GGUF's rope_freqs.weight).
void DivideFrequencies(RopeFrequencies& frequencies, std::span<const float> factors);

// cos and sin of each position, shared by all layers of a step: tables [tokens, rotary_dim / 2] float32, of
// inv_freq [rotary_dim / 2].
void RopeTables(const KernelContext& context, std::span<const float> inv_freq, float attention_factor,
                std::span<const int32_t> positions, MatrixView<float> cos, MatrixView<float> sin);
inline void RopeTables(const KernelContext& context, const RopeFrequencies& frequencies,
                       std::span<const int32_t> positions, MatrixView<float> cos, MatrixView<float> sin) {
  RopeTables(context, frequencies.inv_freq, frequencies.attention_factor, positions, cos, sin);
}

// Rotates the first 2 * cos.cols elements of each head of x [tokens, heads * head_dim] in place.
void ApplyRope(const KernelContext& context, MatrixView<const float> cos, MatrixView<const float> sin,
               int64_t head_dim, MatrixView<float> x);

}  // namespace plumbline

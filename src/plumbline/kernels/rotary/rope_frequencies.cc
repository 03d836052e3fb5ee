#include <algorithm>
#include <cmath>

#include "plumbline/base/check.h"
#include "plumbline/base/float_env.h"
#include "plumbline/kernels/math/scalar_math.h"
#include "plumbline/kernels/rotary/rotary.h"

namespace plumbline {
namespace {

constexpr double kTwoPi = 6.283185307179586;

// The reference works on float32 tensors, and far positions multiply what each of its roundings does to a
// frequency: so every step here is a float32 operation, in its order.

float Llama3(float inv_freq, const RopeScaling& scaling) {
  const auto factor = static_cast<float>(scaling.factor);
  const auto low = static_cast<float>(scaling.low_freq_factor);
  const auto original = static_cast<float>(scaling.original_max_position);
  const float wavelength = static_cast<float>(kTwoPi) / inv_freq;
  if (wavelength < static_cast<float>(scaling.original_max_position / scaling.high_freq_factor))
    return inv_freq;
  if (wavelength > static_cast<float>(scaling.original_max_position / scaling.low_freq_factor)) {
    return inv_freq / factor;
  }
  const float smooth =
      (original / wavelength - low) / static_cast<float>(scaling.high_freq_factor - scaling.low_freq_factor);
  return (1.0f - smooth) * inv_freq / factor + smooth * inv_freq;
}

// The part of the spectrum, as indices of inv_freq, over which YaRN goes from extrapolation to interpolation.
struct Ramp {
  double low;
  double high;

  float At(int64_t i) const {
    const float position = (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    return std::clamp(position, 0.0f, 1.0f);
  }
};

float Yarn(float power, float ramp, const RopeScaling& scaling) {
  const float extrapolation = 1.0f - ramp;
  const float slow = 1.0f / (static_cast<float>(scaling.factor) * power);
  return slow * (1.0f - extrapolation) + 1.0f / power * extrapolation;
}

Ramp YarnRamp(int64_t rotary_dim, double theta, const RopeScaling& scaling) {
  const auto dim = static_cast<double>(rotary_dim);
  // The (fractional) index whose frequency turns `rotations` times over the original context.
  const auto index_of = [&](double rotations) {
    return dim * LogD(scaling.original_max_position / (rotations * kTwoPi)) / (2.0 * LogD(theta));
  };
  double low = index_of(scaling.beta_fast);
  double high = index_of(scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;
  return {low, high};
}

double YarnAttentionFactor(const RopeScaling& scaling) {
  if (scaling.attention_factor != 0.0) return scaling.attention_factor;
  return scaling.factor <= 1.0 ? 1.0 : 0.1 * LogD(scaling.factor) + 1.0;
}

Status WantPositive(const char* name, double value) {
  if (std::isfinite(value) && value > 0.0) return {};
  return InvalidInput("rope {}: got {}, want a positive number", name, value);
}

}  // namespace

Status ValidateRope(int64_t rotary_dim, double theta, const RopeScaling& scaling) {
  using Type = RopeScaling::Type;
  if (rotary_dim <= 0 || rotary_dim % 2 != 0) {
    return InvalidInput("rope dimension: got {}, want a positive even number", rotary_dim);
  }
  if (!(std::isfinite(theta) && theta > 1.0)) {
    return InvalidInput("rope theta: got {}, want a number above 1", theta);
  }
  if (scaling.type == Type::kNone) return {};
  RETURN_IF_ERROR(WantPositive("factor", scaling.factor));
  if (scaling.type == Type::kLinear) return {};
  RETURN_IF_ERROR(WantPositive("original_max_position_embeddings", scaling.original_max_position));
  if (scaling.type == Type::kLlama3) {
    RETURN_IF_ERROR(WantPositive("low_freq_factor", scaling.low_freq_factor));
    RETURN_IF_ERROR(WantPositive("high_freq_factor", scaling.high_freq_factor));
    if (scaling.low_freq_factor < scaling.high_freq_factor) return {};
    return InvalidInput("rope low_freq_factor: got {}, want less than high_freq_factor {}",
                        scaling.low_freq_factor, scaling.high_freq_factor);
  }
  RETURN_IF_ERROR(WantPositive("beta_slow", scaling.beta_slow));
  RETURN_IF_ERROR(WantPositive("beta_fast", scaling.beta_fast));
  if (scaling.attention_factor != 0.0)
    RETURN_IF_ERROR(WantPositive("attention_factor", scaling.attention_factor));
  if (scaling.beta_slow < scaling.beta_fast) return {};
  return InvalidInput("rope beta_slow: got {}, want less than beta_fast {}", scaling.beta_slow,
                      scaling.beta_fast);
}

RopeFrequencies MakeRopeFrequencies(int64_t rotary_dim, double theta, const RopeScaling& scaling) {
  PLUMBLINE_CHECK(ValidateRope(rotary_dim, theta, scaling).has_value());
  const ScopedFloatEnv env;
  const bool yarn = scaling.type == RopeScaling::Type::kYarn;
  const Ramp ramp = yarn ? YarnRamp(rotary_dim, theta, scaling) : Ramp{};
  const double log_theta = LogD(theta);
  RopeFrequencies frequencies;
  for (int64_t i = 0; i < rotary_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rotary_dim);
    const auto power = static_cast<float>(ExpD(static_cast<double>(exponent) * log_theta));
    float inv_freq = 1.0f / power;
    switch (scaling.type) {
      case RopeScaling::Type::kNone:
        break;
      case RopeScaling::Type::kLinear:
        inv_freq /= static_cast<float>(scaling.factor);
        break;
      case RopeScaling::Type::kLlama3:
        inv_freq = Llama3(inv_freq, scaling);
        break;
      case RopeScaling::Type::kYarn:
        inv_freq = Yarn(power, ramp.At(i), scaling);
        break;
    }
    frequencies.inv_freq.push_back(inv_freq);
  }
  if (yarn) frequencies.attention_factor = static_cast<float>(YarnAttentionFactor(scaling));
  return frequencies;
}

void DivideFrequencies(RopeFrequencies& frequencies, std::span<const float> factors) {
  PLUMBLINE_CHECK(factors.size() == frequencies.inv_freq.size());
  const ScopedFloatEnv env;
  for (size_t i = 0; i < factors.size(); ++i) frequencies.inv_freq[i] /= factors[i];
}

}  // namespace plumbline

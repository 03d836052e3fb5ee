#include "plumbline/models/rope_constants.h"

#include <utility>
#include <vector>

#include "plumbline/kernels/rotary/rotary.h"

namespace plumbline {

void DeclareRope(const std::string& factors, DecoderConfig& config) {
  const auto base = [head_dim = config.head_dim, theta = config.rope_theta, scaling = config.rope_scaling] {
    return MakeRopeFrequencies(head_dim, theta, scaling);
  };
  DeclaredConstant frequencies{.name = kRopeFrequencies,
                               .shape = {config.head_dim / 2},
                               .tensor = factors,
                               .tensor_shape = {config.head_dim / 2}};
  frequencies.make = [base, factors](std::span<const float> divisors) -> Result<std::vector<float>> {
    RopeFrequencies rope = base();
    if (factors.empty()) return rope.inv_freq;
    for (float divisor : divisors) {
      if (!(divisor > 0.0f)) return InvalidInput("tensor {}: got {}, want factors above 0", factors, divisor);
    }
    DivideFrequencies(rope, divisors);
    return rope.inv_freq;
  };
  DeclaredConstant attention{.name = kRopeAttention, .shape = {1}};
  attention.make = [base](std::span<const float>) -> Result<std::vector<float>> {
    return std::vector<float>{base().attention_factor};
  };
  config.declares.constants.push_back(std::move(frequencies));
  config.declares.constants.push_back(std::move(attention));
}

}  // namespace plumbline

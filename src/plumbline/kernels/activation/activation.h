// Gated activations: out[r, i] = act(gate[r, i]) * up[r, i], float32. out may be gate or up.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "plumbline/kernels/kernel_context.h"
#include "plumbline/tensor/matrix.h"

namespace plumbline {

enum class Activation : uint8_t {
  kSilu,      // x / (1 + exp(-x))
  kGeluTanh,  // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
};

// Hugging Face's names: "silu", "swish", "gelu_pytorch_tanh", "gelu_new".
std::optional<Activation> ParseActivation(std::string_view name);

void GatedActivation(const KernelContext& context, Activation activation, MatrixView<const float> gate,
                     MatrixView<const float> up, MatrixView<float> out);

}  // namespace plumbline

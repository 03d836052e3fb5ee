// Gated activations: out[r, i] = act(gate[r, i]) * up[r, i], float32. out may be gate or up.
//
// Each operation is rounded on its own, in the order of these formulas (exp and tanh: math/scalar_math.h):
//
//   silu       x / (1 + exp(-x))
//   gelu_tanh  (0.5 x) (1 + tanh(c inner)),  inner = fma(0.044715 (x x), x, x),  c = float32(sqrt(2 / pi))
//
// Where exp(-x) overflows (x < -88.7) silu is -0; silu(-inf) and gelu_tanh(-inf) are NaN, as in PyTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "plumbline/kernels/kernel_context.h"
#include "plumbline/tensor/matrix.h"

namespace plumbline {

enum class Activation : uint8_t {
  kSilu,      // x / (1 + exp(-x))
  kGeluTanh,  // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))  (Hendrycks and Gimpel 2016)
};

// Hugging Face's names: "silu", "swish", "gelu_pytorch_tanh", "gelu_new".
std::optional<Activation> ParseActivation(std::string_view name);

// All of [rows, cols].
void GatedActivation(const KernelContext& context, Activation activation, MatrixView<const float> gate,
                     MatrixView<const float> up, MatrixView<float> out);

}  // namespace plumbline

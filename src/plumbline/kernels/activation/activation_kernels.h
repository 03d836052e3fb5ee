// The loops of activation.h over one row, one table for each instruction set. Float environment of the
// contract; out may be gate or up.
#pragma once

#include <cstdint>

namespace plumbline {

struct ActivationKernels {
  using Row = void (*)(const float* gate, const float* up, float* out, int64_t cols);
  Row silu;
  Row gelu_tanh;
};

namespace isa_avx2 {
extern const ActivationKernels kActivationKernels;
}
namespace isa_avx512 {
extern const ActivationKernels kActivationKernels;
}
namespace isa_avx512_bf16 {
extern const ActivationKernels kActivationKernels;
}

}  // namespace plumbline

// The rotation of rotary.h over the heads of one token, one table for each instruction set. Float environment
// of the contract.
#pragma once

#include <cstdint>

namespace plumbline {

struct RotaryKernels {
  // cos, sin [half]; x [heads, head_dim] in place.
  void (*rotate)(const float* cos, const float* sin, int64_t half, int64_t heads, int64_t head_dim, float* x);
};

namespace isa_avx2 {
extern const RotaryKernels kRotaryKernels;
}
namespace isa_avx512 {
extern const RotaryKernels kRotaryKernels;
}
namespace isa_avx512_bf16 {
extern const RotaryKernels kRotaryKernels;
}

}  // namespace plumbline

// The inner loops of the logits transform, one table for each instruction set. All of them need
// ScopedFloatEnv.
#pragma once

#include <cstdint>

namespace plumbline {

struct LogitsTransformKernels {
  void (*divide)(float* x, int64_t n, float divisor);  // x <- x / divisor
  void (*softcap)(float* x, int64_t n, float cap);     // x <- tanh(x / cap) cap
};

namespace isa_avx2 {
extern const LogitsTransformKernels kLogitsTransformKernels;
}
namespace isa_avx512 {
extern const LogitsTransformKernels kLogitsTransformKernels;
}
namespace isa_avx512_bf16 {
extern const LogitsTransformKernels kLogitsTransformKernels;
}

}  // namespace plumbline

// The loops of limits.h, one table for each instruction set.
#pragma once

#include <cstdint>

namespace plumbline {

// Operations of a step of MultiplyAdd and DotBf16.
inline constexpr int64_t kMultiplyAddOperations = 12 * 16 * 2;
inline constexpr int64_t kDotBf16Operations = 12 * 16 * 4;

struct LimitsKernels {
  // Reads `bytes` (a multiple of 256) in four streams and returns something that depends on all of them.
  uint32_t (*read)(const char* data, int64_t bytes);
  // Twelve independent chains of sixteen lanes, chain i from i, each adding 0.25 at each of `steps` steps
  // (0.5 in DotBf16, two products); returns the sum of all lanes.
  float (*multiply_add)(int64_t steps);
  float (*dot_bf16)(int64_t steps);  // null where the instruction set has none
};

namespace isa_avx2 {
extern const LimitsKernels kLimitsKernels;
}
namespace isa_avx512 {
extern const LimitsKernels kLimitsKernels;
}
namespace isa_avx512_bf16 {
extern const LimitsKernels kLimitsKernels;
}

}  // namespace plumbline

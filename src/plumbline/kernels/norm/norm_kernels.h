// The row loops of norm.h, one table for each instruction set. Float environment of the contract; y may be x.
#pragma once

#include <cstdint>

namespace plumbline {

struct NormKernels {
  void (*rms)(const float* x, int64_t x_stride, const float* weight, float eps, float* y, int64_t y_stride,
              int64_t rows, int64_t cols);
  // bias may be null.
  void (*layer)(const float* x, int64_t x_stride, const float* weight, const float* bias, float eps, float* y,
                int64_t y_stride, int64_t rows, int64_t cols);
};

namespace isa_avx2 {
extern const NormKernels kNormKernels;
}
namespace isa_avx512 {
extern const NormKernels kNormKernels;
}
namespace isa_avx512_bf16 {
extern const NormKernels kNormKernels;
}

}  // namespace plumbline

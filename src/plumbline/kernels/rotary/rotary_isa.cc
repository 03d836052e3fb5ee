#include "plumbline/kernels/rotary/rotary_kernels.h"
#include "plumbline/kernels/simd/vec16.h"

namespace plumbline::PLUMBLINE_ISA {
namespace {

void RotateHead(const float* cos, const float* sin, int64_t half, float* x) {
  float* first = x;
  float* second = x + half;
  int64_t i = 0;
  for (; i + 16 <= half; i += 16) {
    const F32x16 c = Load(cos + i);
    const F32x16 s = Load(sin + i);
    const F32x16 a = Load(first + i);
    const F32x16 b = Load(second + i);
    Store(first + i, Fnma(b, s, a * c));
    Store(second + i, Fma(a, s, b * c));
  }
  if (i == half) return;
  const int n = static_cast<int>(half - i);
  const F32x16 c = LoadN(cos + i, n);
  const F32x16 s = LoadN(sin + i, n);
  const F32x16 a = LoadN(first + i, n);
  const F32x16 b = LoadN(second + i, n);
  StoreN(first + i, Fnma(b, s, a * c), n);
  StoreN(second + i, Fma(a, s, b * c), n);
}

void Rotate(const float* cos, const float* sin, int64_t half, int64_t heads, int64_t head_dim, float* x) {
  for (int64_t h = 0; h < heads; ++h) RotateHead(cos, sin, half, x + h * head_dim);
}

}  // namespace

const RotaryKernels kRotaryKernels = {Rotate};

}  // namespace plumbline::PLUMBLINE_ISA

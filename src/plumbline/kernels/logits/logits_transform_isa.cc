#include "plumbline/kernels/logits/logits_transform_kernels.h"
#include "plumbline/kernels/simd/vec16.h"
#include "plumbline/kernels/simd/vmath.h"

namespace plumbline::PLUMBLINE_ISA {
namespace {

void Divide(float* x, int64_t n, float divisor) {
  const F32x16 d = Set(divisor);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) Store(x + i, Load(x + i) / d);
  if (i < n) {
    const int count = static_cast<int>(n - i);
    StoreN(x + i, LoadN(x + i, count) / d, count);
  }
}

void Softcap(float* x, int64_t n, float cap) {
  const F32x16 c = Set(cap);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) Store(x + i, Tanh(Load(x + i) / c) * c);
  if (i < n) {
    const int count = static_cast<int>(n - i);
    StoreN(x + i, Tanh(LoadN(x + i, count) / c) * c, count);
  }
}

}  // namespace

const LogitsTransformKernels kLogitsTransformKernels = {Divide, Softcap};

}  // namespace plumbline::PLUMBLINE_ISA

#include "plumbline/kernels/activation/activation_kernels.h"
#include "plumbline/kernels/simd/vec16.h"
#include "plumbline/kernels/simd/vmath.h"

namespace plumbline::PLUMBLINE_ISA {
namespace {

inline F32x16 Silu(F32x16 x) { return x / (Set(1.0f) + Exp(Zero() - x)); }

inline F32x16 GeluTanh(F32x16 x) {
  const F32x16 inner = Fma(Set(0.044715f) * (x * x), x, x);
  return (Set(0.5f) * x) * (Set(1.0f) + Tanh(Set(0.7978845608f) * inner));
}

template <F32x16 (*kActivation)(F32x16)>
void Row(const float* gate, const float* up, float* out, int64_t cols) {
  int64_t i = 0;
  for (; i + 16 <= cols; i += 16) Store(out + i, kActivation(Load(gate + i)) * Load(up + i));
  if (i < cols) {
    const int n = static_cast<int>(cols - i);
    StoreN(out + i, kActivation(LoadN(gate + i, n)) * LoadN(up + i, n), n);
  }
}

}  // namespace

const ActivationKernels kActivationKernels = {Row<Silu>, Row<GeluTanh>};

}  // namespace plumbline::PLUMBLINE_ISA

#include "plumbline/kernels/experts/experts_kernels.h"
#include "plumbline/kernels/simd/vec16.h"
#include "plumbline/kernels/simd/vmath.h"

namespace plumbline::PLUMBLINE_ISA {
namespace {

inline int LanesAt(int64_t i, int64_t cols) { return cols - i < 16 ? static_cast<int>(cols - i) : 16; }

void Softmax(float* row, int64_t experts) {
  const F32x16 nothing = Set(-__builtin_inff());
  F32x16 most = nothing;
  for (int64_t i = 0; i < experts; i += 16) {
    const int n = LanesAt(i, experts);
    most = MaxNan(most, Select(FirstN(n), LoadN(row + i, n), nothing));
  }
  const F32x16 max = Set(MaxLane(most));
  F32x16 sum = Zero();
  for (int64_t i = 0; i < experts; i += 16) {
    const int n = LanesAt(i, experts);
    const F32x16 p = Exp(LoadN(row + i, n) - max);
    StoreN(row + i, p, n);
    sum = Select(FirstN(n), sum + p, sum);
  }
  const F32x16 total = Set(TreeSum(sum));
  for (int64_t i = 0; i < experts; i += 16) {
    const int n = LanesAt(i, experts);
    StoreN(row + i, LoadN(row + i, n) / total, n);
  }
}

void Combine(const float* weights, int64_t k, const float* outputs, int64_t stride, const int32_t* slots,
             bool accumulate, float* out, int64_t cols) {
  for (int64_t i = 0; i < cols; i += 16) {
    const int n = LanesAt(i, cols);
    F32x16 acc = Zero();
    for (int64_t e = 0; e < k; ++e)
      acc = Fma(Set(weights[e]), LoadN(outputs + slots[e] * stride + i, n), acc);
    StoreN(out + i, accumulate ? LoadN(out + i, n) + acc : acc, n);
  }
}

}  // namespace

const ExpertKernels kExpertKernels = {Softmax, Combine};

}  // namespace plumbline::PLUMBLINE_ISA

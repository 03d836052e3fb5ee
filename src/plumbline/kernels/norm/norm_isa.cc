#include "plumbline/kernels/norm/norm_kernels.h"
#include "plumbline/kernels/simd/vec16.h"

namespace plumbline::PLUMBLINE_ISA {
namespace {

// Calls fn(first index, lanes in use) for each block of sixteen, the last one shorter. Written so that the
// full blocks compile without masks.
template <typename FullFn, typename TailFn>
inline void Blocks(int64_t cols, FullFn full, TailFn tail) {
  int64_t i = 0;
  for (; i + 16 <= cols; i += 16) full(i);
  if (i < cols) tail(i, static_cast<int>(cols - i));
}

inline F32x16 InverseRoot(float sum, float cols, float eps) {
  return Set(1.0f) / Sqrt(Set(sum) / Set(cols) + Set(eps));
}

// Rows side by side: a row's sum is one chain of dependent additions, so a single one leaves the machine
// waiting.
template <int kRows>
void RmsRows(const float* x, int64_t x_stride, const float* weight, float eps, float* y, int64_t y_stride,
             int64_t cols) {
  F32x16 acc[kRows];
  for (int r = 0; r < kRows; ++r) acc[r] = Zero();
  const auto add = [&](int r, F32x16 v) { acc[r] = Fma(v, v, acc[r]); };
  Blocks(
      cols,
      [&](int64_t i) {
        for (int r = 0; r < kRows; ++r) add(r, Load(x + r * x_stride + i));
      },
      [&](int64_t i, int n) {
        for (int r = 0; r < kRows; ++r) add(r, LoadN(x + r * x_stride + i, n));
      });
  for (int r = 0; r < kRows; ++r) {
    const F32x16 scale = InverseRoot(TreeSum(acc[r]), static_cast<float>(cols), eps);
    const float* from = x + r * x_stride;
    float* to = y + r * y_stride;
    Blocks(
        cols, [&](int64_t i) { Store(to + i, (Load(from + i) * scale) * Load(weight + i)); },
        [&](int64_t i, int n) { StoreN(to + i, (LoadN(from + i, n) * scale) * LoadN(weight + i, n), n); });
  }
}

void Rms(const float* x, int64_t x_stride, const float* weight, float eps, float* y, int64_t y_stride,
         int64_t rows, int64_t cols) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4)
    RmsRows<4>(x + r * x_stride, x_stride, weight, eps, y + r * y_stride, y_stride, cols);
  for (; r < rows; ++r) RmsRows<1>(x + r * x_stride, x_stride, weight, eps, y + r * y_stride, y_stride, cols);
}

template <bool kBias>
void LayerRow(const float* x, const float* weight, const float* bias, float eps, float* y, int64_t cols) {
  F32x16 acc = Zero();
  Blocks(
      cols, [&](int64_t i) { acc = acc + Load(x + i); },
      [&](int64_t i, int n) { acc = acc + LoadN(x + i, n); });
  const F32x16 mean = Set(TreeSum(acc)) / Set(static_cast<float>(cols));

  acc = Zero();
  const auto add = [&](F32x16 d) { acc = Fma(d, d, acc); };
  Blocks(
      cols, [&](int64_t i) { add(Load(x + i) - mean); },
      [&](int64_t i, int n) { add(Select(FirstN(n), LoadN(x + i, n) - mean, Zero())); });
  const F32x16 scale = InverseRoot(TreeSum(acc), static_cast<float>(cols), eps);

  const auto affine = [](F32x16 v, F32x16 w, F32x16 b) { return kBias ? Fma(v, w, b) : v * w; };
  Blocks(
      cols,
      [&](int64_t i) {
        const F32x16 b = kBias ? Load(bias + i) : Zero();
        Store(y + i, affine((Load(x + i) - mean) * scale, Load(weight + i), b));
      },
      [&](int64_t i, int n) {
        const F32x16 b = kBias ? LoadN(bias + i, n) : Zero();
        StoreN(y + i, affine((LoadN(x + i, n) - mean) * scale, LoadN(weight + i, n), b), n);
      });
}

void Layer(const float* x, int64_t x_stride, const float* weight, const float* bias, float eps, float* y,
           int64_t y_stride, int64_t rows, int64_t cols) {
  const auto row = bias != nullptr ? LayerRow<true> : LayerRow<false>;
  for (int64_t r = 0; r < rows; ++r) row(x + r * x_stride, weight, bias, eps, y + r * y_stride, cols);
}

}  // namespace

const NormKernels kNormKernels = {Rms, Layer};

}  // namespace plumbline::PLUMBLINE_ISA

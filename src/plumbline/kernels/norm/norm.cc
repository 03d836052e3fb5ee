#include "plumbline/kernels/norm/norm.h"

#include "plumbline/base/check.h"
#include "plumbline/kernels/for_rows.h"
#include "plumbline/kernels/norm/norm_kernels.h"

namespace plumbline {
namespace {

const NormKernels& Kernels(Isa isa) {
  return ForIsa(isa, isa_avx2::kNormKernels, isa_avx512::kNormKernels, isa_avx512_bf16::kNormKernels);
}

}  // namespace

void RmsNorm(const KernelContext& context, MatrixView<const float> x, const float* weight, float eps,
             MatrixView<float> y) {
  PLUMBLINE_CHECK(x.rows == y.rows && x.cols == y.cols && x.cols > 0);
  const NormKernels& kernels = Kernels(context.isa);
  ForRows(context.pool, x.rows, x.rows * x.cols, [&](int64_t row, int64_t count) {
    kernels.rms(x.Row(row), x.stride, weight, eps, y.Row(row), y.stride, count, x.cols);
  });
}

void RmsNormHeads(const KernelContext& context, MatrixView<float> x, int64_t head_dim, const float* weight,
                  float eps) {
  PLUMBLINE_CHECK(head_dim > 0 && x.cols % head_dim == 0);
  const NormKernels& kernels = Kernels(context.isa);
  ForRows(context.pool, x.rows, x.rows * x.cols, [&](int64_t row, int64_t count) {
    for (int64_t r = row; r < row + count; ++r) {
      kernels.rms(x.Row(r), head_dim, weight, eps, x.Row(r), head_dim, x.cols / head_dim, head_dim);
    }
  });
}

void LayerNorm(const KernelContext& context, MatrixView<const float> x, const float* weight,
               const float* bias, float eps, MatrixView<float> y) {
  PLUMBLINE_CHECK(x.rows == y.rows && x.cols == y.cols && x.cols > 0);
  const NormKernels& kernels = Kernels(context.isa);
  ForRows(context.pool, x.rows, x.rows * x.cols, [&](int64_t row, int64_t count) {
    kernels.layer(x.Row(row), x.stride, weight, bias, eps, y.Row(row), y.stride, count, x.cols);
  });
}

}  // namespace plumbline

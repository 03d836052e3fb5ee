#include "plumbline/kernels/rotary/rotary.h"

#include "plumbline/base/check.h"
#include "plumbline/kernels/for_rows.h"
#include "plumbline/kernels/math/scalar_math.h"
#include "plumbline/kernels/rotary/rotary_kernels.h"

namespace plumbline {
namespace {

const RotaryKernels& Kernels(Isa isa) {
  return ForIsa(isa, isa_avx2::kRotaryKernels, isa_avx512::kRotaryKernels, isa_avx512_bf16::kRotaryKernels);
}

}  // namespace

void RopeTables(const KernelContext& context, std::span<const float> inv_freq, float attention_factor,
                std::span<const int32_t> positions, MatrixView<float> cos, MatrixView<float> sin) {
  const auto tokens = static_cast<int64_t>(positions.size());
  const auto half = static_cast<int64_t>(inv_freq.size());
  PLUMBLINE_CHECK(cos.rows == tokens && cos.cols == half && sin.rows == tokens && sin.cols == half);
  const auto fill_row = [&](int64_t row) {
    const auto position = static_cast<float>(positions[static_cast<size_t>(row)]);
    for (int64_t i = 0; i < half; ++i) {
      const float angle = position * inv_freq[static_cast<size_t>(i)];
      double s, c;
      SinCosD(static_cast<double>(angle), &s, &c);
      cos.Row(row)[i] = static_cast<float>(c) * attention_factor;
      sin.Row(row)[i] = static_cast<float>(s) * attention_factor;
    }
  };
  // A float64 sine and cosine are worth about sixty simple operations on vectors.
  ForRows(context.pool, tokens, 64 * tokens * half, [&](int64_t row, int64_t count) {
    for (int64_t r = row; r < row + count; ++r) fill_row(r);
  });
}

void ApplyRope(const KernelContext& context, MatrixView<const float> cos, MatrixView<const float> sin,
               int64_t head_dim, MatrixView<float> x) {
  PLUMBLINE_CHECK(cos.rows == x.rows && sin.rows == x.rows && cos.cols == sin.cols);
  PLUMBLINE_CHECK(head_dim > 0 && x.cols % head_dim == 0 && 2 * cos.cols <= head_dim);
  const RotaryKernels& kernels = Kernels(context.isa);
  ForRows(context.pool, x.rows, x.rows * x.cols, [&](int64_t row, int64_t count) {
    for (int64_t r = row; r < row + count; ++r) {
      kernels.rotate(cos.Row(r), sin.Row(r), cos.cols, x.cols / head_dim, head_dim, x.Row(r));
    }
  });
}

}  // namespace plumbline

// RMS and layer normalisation over rows, float32. Row statistics are 16 interleaved lanes (lane t sums the
// elements with index % 16 == t in ascending order; squares by fused multiply-add, fma(x, x, acc)) combined
// by the lane tree. Everything else is one rounded operation each, in the order of the formulas; 1 / sqrt(v)
// is an IEEE square root and an IEEE division.
#pragma once

#include "plumbline/kernels/kernel_context.h"
#include "plumbline/tensor/matrix.h"

namespace plumbline {

// y[r, i] = (x[r, i] * s_r) * weight[i],  s_r = 1 / sqrt(sum_i x[r, i]^2 / cols + eps).   y may be x.
// (Zhang and Sennrich 2019.) weight [cols].
void RmsNorm(const KernelContext& context, MatrixView<const float> x, const float* weight, float eps,
             MatrixView<float> y);

// The same over each head of each row: x [tokens, heads * head_dim] in place, weight [head_dim] shared by all
// heads (Qwen3's qk-norm).
void RmsNormHeads(const KernelContext& context, MatrixView<float> x, int64_t head_dim, const float* weight,
                  float eps);

// y[r, i] = ((x[r, i] - mean_r) * s_r) * weight[i] + bias[i] (one fused multiply-add for the last two),
// s_r = 1 / sqrt(sum_i (x[r, i] - mean_r)^2 / cols + eps),  mean_r = sum_i x[r, i] / cols. bias may be null
// (then a plain product). y may be x. (Ba et al. 2016.)
void LayerNorm(const KernelContext& context, MatrixView<const float> x, const float* weight,
               const float* bias, float eps, MatrixView<float> y);

}  // namespace plumbline

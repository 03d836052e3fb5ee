// Which experts of a sparse feed-forward a row goes to, and the sum of what they give back (Shazeer et al.
// 2017; numerics contract, section 2).
//
// Per row of router logits x[0 .. experts):
//
//   p = exp(x - max x) / s, s = sum exp(x - max x) over 16 interleaved lanes and their tree
//   chosen: the k largest p, in the order (p descending, expert id ascending); ties keep the lowest ids
//   w = p, or p / t with t = ((p_0 + p_1) + ...) over the chosen, in their order
//
// A NaN logit, or an infinite one, makes every weight of its row NaN.
#pragma once

#include <cstdint>
#include <span>

#include "plumbline/kernels/kernel_context.h"
#include "plumbline/tensor/matrix.h"

namespace plumbline {

// logits [rows, experts] are overwritten. ids and weights [rows, k], 1 <= k <= experts.
void ChooseExperts(const KernelContext& context, MatrixView<float> logits, bool normalize,
                   MatrixView<int32_t> ids, MatrixView<float> weights);

// out[r] = acc, or out[r] += acc where `accumulate`: acc = fma(weights[r, i], outputs[slots[r k + i]], acc)
// from +0, i ascending. weights [rows, k]; slots [rows * k] are rows of outputs; out [rows, cols] must not
// overlap outputs.
void CombineExperts(const KernelContext& context, MatrixView<const float> weights,
                    MatrixView<const float> outputs, std::span<const int32_t> slots, bool accumulate,
                    MatrixView<float> out);

}  // namespace plumbline

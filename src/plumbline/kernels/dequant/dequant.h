// Dequantisation of GGUF blocks and conversion of plain types to float32, bit for bit what the reference
// (PyPI's gguf, gguf.quants.dequantize) computes: fma-free, every step rounded to float32, in this order
// (d, m, dmin: the block's float16 scales, sc, mn: its integer sub-scales, q: the element's integer):
//
//   q4_0 (q - 8), q5_0 (q - 16), q8_0:  d * q
//   q4_1, q5_1:                         (d * q) + m
//   q4_k, q5_k:                         ((d * sc) * q) - (dmin * mn)
//   q6_k:                               (d * sc) * (q - 32)
//   f32, f16, bf16:                     exact
//
// The bits do not depend on flush-to-zero or denormals-are-zero: a float16 is a multiple of 2^-24, so every
// intermediate and every result of a block is a multiple of 2^-24 and never a float32 denormal; f32, f16 and
// bf16 are converted by integer operations, which keep denormals as they are. A NaN (from an infinite or NaN
// scale) is a NaN in the same element, of unspecified sign and payload.
#pragma once

#include <cstdint>

#include "plumbline/base/dtype.h"

namespace plumbline {

// out[i] = value of element i, 0 <= i < elements, of `elements` consecutive elements of a row starting at
// `data` (any alignment; a whole number of the type's blocks). dtype: f32, f16, bf16 or any quantised type.
// `out` must not overlap `data`.
void DequantizeRow(DType dtype, const void* data, int64_t elements, float* out);

}  // namespace plumbline

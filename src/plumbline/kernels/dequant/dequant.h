// Dequantisation of GGUF blocks and conversion of plain types to float32, bit for bit what the reference
// (PyPI's gguf, gguf.quants.dequantize) computes: y = fma-free d * q (+ m), every step float32.
#pragma once

#include <cstdint>

#include "plumbline/base/dtype.h"

namespace plumbline {

// `elements` consecutive elements of a row starting at `data` (a multiple of the type's block).
// dtype: f32, f16, bf16 or any quantised type.
void DequantizeRow(DType dtype, const void* data, int64_t elements, float* out);

}  // namespace plumbline

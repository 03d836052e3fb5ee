// Single rows of a packed weight, back as float32.
#pragma once

#include <cstdint>

#include "plumbline/kernels/gemm/packed_weight.h"

namespace plumbline {

// out [k]: the values of row `row` as the matmul sees them. Call under ScopedFloatEnv.
void ReadPackedRow(const PackedWeight& weight, int64_t row, float* out);

}  // namespace plumbline

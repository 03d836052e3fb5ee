// out[i, :] = table[ids[i] - first_id, :] as float32: the value of each element is the packed weight's (its
// dequantised float32, rounded to bf16 where the compute type is bf16), so a tied and an untied table give
// the same bits.
#pragma once

#include <cstdint>
#include <span>

#include "plumbline/kernels/gemm/packed_weight.h"
#include "plumbline/tensor/matrix.h"

namespace plumbline {

// table [rows, hidden] holds the rows of ids first_id, first_id + 1, ...; ids [tokens] each among them, out
// [tokens, hidden].
void Embed(const KernelContext& context, const PackedWeight& table, std::span<const int64_t> ids,
           int64_t first_id, MatrixView<float> out);

}  // namespace plumbline

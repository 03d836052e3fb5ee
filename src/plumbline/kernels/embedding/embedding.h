// out[i, :] = table[ids[i], :] as float32: the value of each element is the packed weight's (its dequantised
// float32, rounded to bf16 where the compute type is bf16), so a tied and an untied table give the same bits.
#pragma once

#include <cstdint>
#include <span>

#include "plumbline/kernels/gemm/packed_weight.h"
#include "plumbline/tensor/matrix.h"

namespace plumbline {

// table [vocab, hidden], ids [tokens] each in [0, vocab), out [tokens, hidden].
void Embed(const KernelContext& context, const PackedWeight& table, std::span<const int32_t> ids,
           MatrixView<float> out);

}  // namespace plumbline

// The integers of one GGUF block, and what they are in a packed panel.
#pragma once

#include <cstdint>
#include <optional>

#include "plumbline/base/dtype.h"
#include "plumbline/kernels/gemm/packed_format.h"

namespace plumbline {

// Fields a format lacks are left alone. Scales are float16 bits.
struct BlockIntegers {
  uint16_t d;
  uint16_t minimum;
  uint8_t sub_scale[16];   // q4_k, q5_k: 8 of 6 bits; q6_k: 16 int8
  uint8_t sub_minimum[8];  // q4_k, q5_k
  uint8_t q[256];  // codes of 4, 5, 6 or 8 bits, unsigned: the quantised integer plus the layout's offset
};

// What a GGUF type is packed as; none where it has no blocks.
std::optional<PackedFormat> QuantizedFormat(DType dtype);

// `block` points at one block of the GGUF type `format` comes from.
void ReadGgufBlock(PackedFormat format, const uint8_t* block, BlockIntegers& out);

// Column `column` of one block of a panel (packed_format.h).
void ReadPackedBlock(PackedFormat format, PanelOrder order, const uint8_t* block, int column,
                     BlockIntegers& out);

}  // namespace plumbline

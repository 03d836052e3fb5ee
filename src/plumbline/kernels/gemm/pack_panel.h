// One panel of a packed weight (packed_format.h) from the source rows that become its columns.
#pragma once

#include <cstdint>

#include "plumbline/base/dtype.h"
#include "plumbline/kernels/gemm/packed_format.h"

namespace plumbline {

struct PanelSource {
  DType dtype;
  int columns;
  const uint8_t* row[kPanel];
};

// kBf16 or kF32 from rows of float32, float16 or bf16; columns behind the last are zero. Values are rounded
// to bf16 where `compute` is kBf16; a bf16 source computed as float32 keeps its bits.
void PackFloats(const PanelSource& source, int64_t k, PackedFormat format, Compute compute, void* panel);

// A quantised format from rows of the GGUF type it comes from, k a multiple of the block; columns behind the
// last are left alone. Returns what all of the panel's blocks allow.
Decoding PackQuantized(const PanelSource& source, int64_t k, PackedFormat format, PanelOrder order,
                       uint8_t* panel);

}  // namespace plumbline

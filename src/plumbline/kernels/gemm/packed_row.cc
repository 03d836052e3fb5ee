#include "plumbline/kernels/gemm/packed_row.h"

#include <cmath>
#include <cstring>

#include "plumbline/base/check.h"
#include "plumbline/base/float16.h"
#include "plumbline/kernels/gemm/block_integers.h"

namespace plumbline {
namespace {

// scale and (negative) minimum of the 16 elements from 16 * part.
struct Affine {
  float scale;
  float minimum;
};

Affine AffineOf(PackedFormat format, const BlockIntegers& in, int part) {
  const float d = F16ToF32(in.d);
  switch (format) {
    case PackedFormat::kQ4_K:
    case PackedFormat::kQ5_K:
      return {d * static_cast<float>(in.sub_scale[part / 2]),
              -(F16ToF32(in.minimum) * static_cast<float>(in.sub_minimum[part / 2]))};
    case PackedFormat::kQ6_K:
      return {d * static_cast<float>(static_cast<int8_t>(in.sub_scale[part])), 0.0f};
    default:
      return {d, Layout(format).has_minimum ? F16ToF32(in.minimum) : 0.0f};
  }
}

void ReadQuantized(const PackedWeight& weight, const uint8_t* panel, int column, float* out) {
  const PackedFormat format = weight.format();
  const QuantLayout layout = Layout(format);
  BlockIntegers integers;
  for (int64_t begin = 0; begin < weight.k(); begin += layout.block, panel += layout.BlockBytes()) {
    ReadPackedBlock(format, weight.order(), panel, column, integers);
    for (int part = 0; part < layout.block / 16; ++part) {
      const Affine affine = AffineOf(format, integers, part);
      for (int i = 16 * part; i < 16 * part + 16; ++i) {
        const auto q = static_cast<float>(integers.q[i] - layout.offset);
        float value = layout.has_minimum ? std::fma(affine.scale, q, affine.minimum) : affine.scale * q;
        if (weight.compute() == Compute::kBf16) value = Bf16ToF32(F32ToBf16(value));
        out[begin + i] = value;
      }
    }
  }
}

}  // namespace

void ReadPackedRow(const PackedWeight& weight, int64_t row, float* out) {
  PLUMBLINE_CHECK(row >= 0 && row < weight.n());
  const auto column = static_cast<int>(row % kPanel);
  const void* panel = weight.Panel(row / kPanel);
  if (weight.format() == PackedFormat::kF32) {
    const auto* values = static_cast<const float*>(panel) + column;
    for (int64_t i = 0; i < weight.k(); ++i) out[i] = values[i * kPanel];
  } else if (weight.format() == PackedFormat::kBf16) {
    const auto* pairs = static_cast<const uint32_t*>(panel) + column;
    for (int64_t i = 0; i < weight.k(); ++i) {
      const uint32_t pair = pairs[i / 2 * kPanel];
      out[i] = Bf16ToF32(static_cast<bf16_bits>(i % 2 == 0 ? pair >> 16 : pair));
    }
  } else {
    ReadQuantized(weight, static_cast<const uint8_t*>(panel), column, out);
  }
}

}  // namespace plumbline

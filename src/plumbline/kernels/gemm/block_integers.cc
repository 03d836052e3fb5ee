#include "plumbline/kernels/gemm/block_integers.h"

#include <algorithm>

#include "plumbline/kernels/gemm/gguf_block.h"

namespace plumbline {
namespace {

void ReadSubScales(PackedFormat format, const uint8_t* scales, int group, int at, BlockIntegers& out) {
  if (format == PackedFormat::kQ6_K) {
    out.sub_scale[2 * group] = scales[at];
    out.sub_scale[2 * group + 1] = scales[kPanel + at];
  } else {
    out.sub_scale[group] = scales[at];
    out.sub_minimum[group] = scales[kPanel + at];
  }
}

void Scatter(uint32_t word, int step, int count, int from, int bits, uint8_t* q) {
  for (int i = 0; i < count; ++i) {
    q[step * i] = static_cast<uint8_t>(q[step * i] | ((word >> (bits * i)) & ((1u << bits) - 1u)) << from);
  }
}

void ReadQuads(const uint8_t* words, int from, int bits, int column, uint8_t* q) {
  const uint32_t mask = ((1u << bits) - 1u) * 0x01010101u;
  const int per_word = 8 / bits;
  for (int quad = 0; quad < 8; ++quad) {
    const uint32_t word = LoadWord<uint32_t>(words + 4 * (kPanel * (quad / per_word) + column));
    const uint32_t codes = ((word >> (bits * (quad % per_word))) & mask) << from;
    StoreWord(q + 4 * quad, LoadWord<uint32_t>(q + 4 * quad) | codes);
  }
}

void ReadGroup(const QuantLayout& layout, PanelOrder order, const uint8_t* low, int column, uint8_t* q) {
  const uint8_t* high = low + layout.LowBytes();
  std::fill_n(q, 32, uint8_t{0});
  if (order == PanelOrder::kQuads) {
    ReadQuads(low, 0, layout.low_bits, column, q);
    if (layout.high_bits != 0) ReadQuads(high, 4, layout.high_bits, column, q);
    return;
  }
  for (int index = 0; index < WordStreams(order); ++index) {
    const WordStream stream = WordStreamOf(order, column, index);
    const int elements = 32 / stream.step;
    const auto read = [&](const uint8_t* words, int from, int bits) {
      const int per_word = std::min(32 / bits, elements);
      for (int w = 0; w * per_word < elements; ++w) {
        const int at = stream.width * w + stream.at;
        const uint32_t word =
            per_word * bits == 16 ? LoadWord<uint16_t>(words + 2 * at) : LoadWord<uint32_t>(words + 4 * at);
        Scatter(word, stream.step, per_word, from, bits, q + stream.first + w * per_word * stream.step);
      }
    };
    read(low, 0, layout.low_bits);
    if (layout.high_bits != 0) read(high, 4, layout.high_bits);
  }
}

}  // namespace

std::optional<PackedFormat> QuantizedFormat(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return PackedFormat::kQ4_0;
    case DType::kQ4_1:
      return PackedFormat::kQ4_1;
    case DType::kQ5_0:
      return PackedFormat::kQ5_0;
    case DType::kQ5_1:
      return PackedFormat::kQ5_1;
    case DType::kQ8_0:
      return PackedFormat::kQ8_0;
    case DType::kQ4_K:
      return PackedFormat::kQ4_K;
    case DType::kQ5_K:
      return PackedFormat::kQ5_K;
    case DType::kQ6_K:
      return PackedFormat::kQ6_K;
    default:
      return std::nullopt;
  }
}

void ReadGgufBlock(PackedFormat format, const uint8_t* block, BlockIntegers& out) {
  ForQuantized(format, [&]<PackedFormat kFormat>() { ReadGgufBlock<kFormat>(block, out); });
}

void ReadPackedBlock(PackedFormat format, PanelOrder order, const uint8_t* block, int column,
                     BlockIntegers& out) {
  const QuantLayout layout = Layout(format);
  const int at = ScalePosition(order, column);
  out.d = LoadWord<uint16_t>(block + 2 * at);
  if (layout.has_minimum) out.minimum = LoadWord<uint16_t>(block + 64 + 2 * at);
  const uint8_t* group = block + layout.HeadBytes();
  for (int g = 0; g < layout.Groups(); ++g, group += layout.GroupBytes()) {
    if (layout.group_scale_bytes != 0) ReadSubScales(format, group, g, at, out);
    ReadGroup(layout, order, group + layout.group_scale_bytes, column, out.q + 32 * g);
  }
}

}  // namespace plumbline

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "plumbline/base/float16.h"
#include "plumbline/kernels/dequant/dequant.h"
#include "plumbline/kernels/gemm/pack_panel.h"

namespace plumbline {
namespace {

// Rows pass through a tile of float32 that stays in the first-level cache, so that both the reads along
// rows and the writes across columns are dense.
constexpr int64_t kTileK = 128;

void PackAny(const PanelSource& source, int64_t k, PackedFormat format, Compute compute, void* panel) {
  float tile[kPanel][kTileK];
  const int64_t bytes = ByteSize(source.dtype, 1);
  for (int64_t begin = 0; begin < k; begin += kTileK) {
    const int64_t count = std::min(kTileK, k - begin);
    for (int c = 0; c < kPanel; ++c) {
      std::fill(tile[c], tile[c] + kTileK, 0.0f);
      if (c < source.columns) DequantizeRow(source.dtype, source.row[c] + begin * bytes, count, tile[c]);
    }
    if (format == PackedFormat::kF32) {
      float* out = static_cast<float*>(panel) + begin * kPanel;
      for (int64_t i = 0; i < count; ++i) {
        for (int c = 0; c < kPanel; ++c) out[i * kPanel + c] = tile[c][i];
      }
      continue;
    }
    const auto bits = [compute](float value) -> uint32_t {
      return compute == Compute::kBf16 ? F32ToBf16(value) : std::bit_cast<uint32_t>(value) >> 16;
    };
    uint32_t* out = static_cast<uint32_t*>(panel) + begin / 2 * kPanel;
    for (int64_t p = 0; p < (count + 1) / 2; ++p) {
      for (int c = 0; c < kPanel; ++c)
        out[p * kPanel + c] = bits(tile[c][2 * p]) << 16 | bits(tile[c][2 * p + 1]);
    }
  }
}

using Words [[gnu::vector_size(32)]] = uint32_t;
using Halves [[gnu::vector_size(32)]] = uint16_t;

// The first `count` of eight words, the others zero.
Words LoadWords(const uint8_t* from, int64_t count) {
  Words x = {};
  if (count < 8) {
    std::memcpy(&x, from, 4 * count);
  } else {
    std::memcpy(&x, from, sizeof x);
  }
  return x;
}

// Eight rows of eight words become columns: by words, then pairs of words, then halves of the vector.
void Transpose(Words (&x)[8]) {
  Words y[8];
  for (int i = 0; i < 8; i += 2) {
    y[i] = __builtin_shufflevector(x[i], x[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    y[i + 1] = __builtin_shufflevector(x[i], x[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int j = 0; j < 2; ++j) {
      x[i + 2 * j] = __builtin_shufflevector(y[i + j], y[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      x[i + 2 * j + 1] = __builtin_shufflevector(y[i + j], y[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int i = 0; i < 4; ++i) {
    y[i] = __builtin_shufflevector(x[i], x[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    y[i + 4] = __builtin_shufflevector(x[i], x[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  std::copy(y, y + 8, x);
}

// Where a bf16 is neither a normal number nor zero: all bits of its lane.
Halves OddOnes(Words pairs) {
  const Halves magnitude = reinterpret_cast<Halves>(pairs) & 0x7fff;
  return reinterpret_cast<Halves>((magnitude - 1 < 0x7f) | (magnitude >= 0x7f80));
}

// bf16 stays what it is but for denormals and NaN, which PackAny sees to: returns false where there are any,
// or an odd k.
bool PackPairs(const PanelSource& source, int64_t k, uint32_t* panel) {
  if (k % 2 != 0) return false;
  Halves odd = {};
  for (int64_t begin = 0; begin < k / 2; begin += 8) {
    const int64_t pairs = std::min<int64_t>(8, k / 2 - begin);
    for (int c = 0; c < kPanel; c += 8) {
      Words x[8];
      for (int i = 0; i < 8; ++i) {
        x[i] = c + i < source.columns ? LoadWords(source.row[c + i] + 4 * begin, pairs) : Words{};
        odd |= OddOnes(x[i]);
        x[i] = x[i] << 16 | x[i] >> 16;
      }
      Transpose(x);
      for (int64_t p = 0; p < pairs; ++p) std::memcpy(panel + (begin + p) * kPanel + c, &x[p], 32);
    }
  }
  return std::ranges::all_of(std::bit_cast<std::array<uint16_t, 16>>(odd), [](uint16_t o) { return o == 0; });
}

}  // namespace

void PackFloats(const PanelSource& source, int64_t k, PackedFormat format, Compute compute, void* panel) {
  const bool pairs = source.dtype == DType::kBF16 && format == PackedFormat::kBf16;
  if (pairs && PackPairs(source, k, static_cast<uint32_t*>(panel))) return;
  PackAny(source, k, format, compute, panel);
}

}  // namespace plumbline

#include "plumbline/kernels/gemm/packed_weight.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "plumbline/base/float16.h"
#include "plumbline/kernels/dequant/dequant.h"
#include "plumbline/kernels/gemm/block_integers.h"
#include "plumbline/kernels/gemm/gemm_plan.h"

namespace plumbline {
namespace {

constexpr int64_t kMaxLeaf = 256;

// Of the source, between two calls of batch_done.
constexpr int64_t kBatchBytes = int64_t{8} << 20;

std::optional<PackedFormat> FormatOf(DType dtype, Compute compute) {
  const bool floats = dtype == DType::kF32 || dtype == DType::kF16;
  if (floats) return compute == Compute::kF32 ? PackedFormat::kF32 : PackedFormat::kBf16;
  if (dtype == DType::kBF16) return PackedFormat::kBf16;
  return QuantizedFormat(dtype);
}

Status CheckSource(const RawTensor& source, int64_t leaf, std::span<const int32_t> row_order) {
  if (source.shape.size() != 2 || source.shape[0] <= 0 || source.shape[1] <= 0) {
    return InvalidInput("weight shape: got {} dimensions of {} elements, want [n, k] ({})",
                        source.shape.size(), source.Elements(), source.name);
  }
  const int64_t k = source.shape[1];
  const int64_t block = Info(source.dtype).block_elements;
  if (k % block != 0) {
    return InvalidInput("weight columns: got {}, want a multiple of {}, the block of {} ({})", k, block,
                        Info(source.dtype).name, source.name);
  }
  const int64_t granule = std::max<int64_t>(block, 2);
  if (leaf <= 0 || leaf > kMaxLeaf || leaf % granule != 0) {
    return InvalidInput("leaf of the reduction: got {}, want a multiple of {} up to {} ({}, {})", leaf,
                        granule, kMaxLeaf, Info(source.dtype).name, source.name);
  }
  for (const int32_t row : row_order) {
    if (row < 0 || row >= source.shape[0]) {
      return InvalidInput("row order: got row {}, want one of 0..{} ({})", row, source.shape[0] - 1,
                          source.name);
    }
  }
  return {};
}

PanelOrder OrderFor(Isa isa, Compute compute) {
  if (compute == Compute::kInt8) return PanelOrder::kQuads;
  return UsesPairs(isa, compute) ? PanelOrder::kPairs : PanelOrder::kColumns;
}

// One panel's source: the rows that become its columns.
struct PanelSource {
  DType dtype;
  int columns;
  const uint8_t* row[kPanel];
};

// Rows pass through a tile of float32 that stays in the first-level cache, so that both the reads along
// rows and the writes across columns are dense.
constexpr int64_t kTileK = 128;

void PackPlain(const PanelSource& source, int64_t k, PackedFormat format, Compute compute, void* panel) {
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
    // A bf16 source computed in float32 keeps its bits; computed in bf16, denormals are zeros already here.
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

// Of two bf16 side by side: whether one is neither a normal number nor zero.
bool HasOdd(uint32_t pair) {
  const auto odd = [](uint32_t bits) {
    return (bits & 0x7f80) == 0x7f80 || ((bits & 0x7f80) == 0 && (bits & 0x7f) != 0);
  };
  return odd(pair) || odd(pair >> 16);
}

// bf16 stays what it is but for denormals and NaN, which PackPlain sees to: returns false where there are
// any, or an odd k.
bool PackPairs(const PanelSource& source, int64_t k, uint32_t* panel) {
  if (k % 2 != 0) return false;
  for (int64_t begin = 0; begin < k / 2; begin += kTileK) {
    const int64_t count = std::min(kTileK, k / 2 - begin);
    for (int c = 0; c < source.columns; ++c) {
      uint32_t* out = panel + begin * kPanel + c;
      bool odd = false;
      for (int64_t p = 0; p < count; ++p) {
        uint32_t pair;
        std::memcpy(&pair, source.row[c] + 4 * (begin + p), sizeof pair);
        odd |= HasOdd(pair);
        out[p * kPanel] = pair << 16 | pair >> 16;
      }
      if (odd) return false;
    }
    for (int64_t p = 0; p < count; ++p)
      std::fill(panel + (begin + p) * kPanel + source.columns, panel + (begin + p + 1) * kPanel, 0u);
  }
  return true;
}

// The product with code 0 of a scale below zero is -0, and stays it where the minimum is -0.
bool IsPlain(const QuantLayout& layout, const BlockIntegers& integers) {
  const auto finite = [](uint16_t f16) { return (f16 & 0x7c00) != 0x7c00; };
  if (!layout.has_minimum) return finite(integers.d);
  return finite(integers.d) && finite(integers.minimum) && (integers.d & 0x8000) == 0;
}

bool IsExact(PackedFormat format, const BlockIntegers& integers) {
  const double scale = F16ToF32(integers.d);
  if (format == PackedFormat::kQ4_1) {
    const double minimum = F16ToF32(integers.minimum) - 2048.0 * scale;
    return static_cast<double>(static_cast<float>(minimum)) == minimum;
  }
  if (format != PackedFormat::kQ8_0 || (integers.d & 0x8000) != 0) return false;
  return scale > 0 || std::all_of(integers.q, integers.q + 32, [](uint8_t q) { return q >= 128; });
}

Decoding DecodingOf(PackedFormat format, const BlockIntegers& integers) {
  if (!IsPlain(Layout(format), integers)) return Decoding::kAny;
  return IsExact(format, integers) ? Decoding::kExact : Decoding::kPlain;
}

// Returns what all of the panel's blocks allow.
Decoding PackQuantized(const PanelSource& source, int64_t k, PackedFormat format, PanelOrder order,
                       uint8_t* panel) {
  const int64_t blocks = k / Layout(format).block;
  const int64_t block_bytes = Info(source.dtype).block_bytes;
  BlockIntegers integers;
  Decoding decoding = Decoding::kExact;
  for (int64_t b = 0; b < blocks; ++b, panel += Layout(format).BlockBytes()) {
    for (int c = 0; c < source.columns; ++c) {
      ReadGgufBlock(format, source.row[c] + b * block_bytes, integers);
      decoding = std::min(decoding, DecodingOf(format, integers));
      WritePackedBlock(format, order, integers, c, panel);
    }
  }
  return decoding;
}

}  // namespace

int64_t PackedWeight::PackedBytes(DType dtype, int64_t n, int64_t k, Compute compute) {
  const std::optional<PackedFormat> format = FormatOf(dtype, compute);
  return format.has_value() ? (n + kPanel - 1) / kPanel * PanelBytes(*format, k) : 0;
}

Result<PackedWeight> PackedWeight::Pack(const KernelContext& context, const RawTensor& source,
                                        Compute compute, int64_t leaf, std::span<const int32_t> row_order,
                                        BufferArena* arena, const std::function<void()>& batch_done) {
  const std::optional<PackedFormat> format = FormatOf(source.dtype, compute);
  if (!format.has_value()) {
    return InvalidInput("weight type: got {}, want a floating-point or quantised type ({})",
                        Info(source.dtype).name, source.name);
  }
  RETURN_IF_ERROR(CheckSource(source, leaf, row_order));
  if (!IsQuantized(*format)) compute = WithoutIntegers(compute);
  PackedWeight weight;
  weight.n_ = row_order.empty() ? source.shape[0] : static_cast<int64_t>(row_order.size());
  weight.k_ = source.shape[1];
  weight.leaf_ = leaf;
  weight.compute_ = compute;
  weight.format_ = *format;
  weight.panel_bytes_ = PanelBytes(*format, weight.k_);
  weight.order_ = OrderFor(context.isa, compute);
  const int64_t bytes = weight.bytes() + kPanelSlack;
  ASSIGN_OR_RETURN(weight.buffer_, arena != nullptr ? arena->Allocate(bytes) : Buffer::Allocate(bytes));

  const auto* rows = static_cast<const uint8_t*>(source.data);
  const int64_t row_bytes = source.RowBytes();
  std::vector<Decoding> decoding(weight.panels(), Decoding::kExact);
  const auto pack_panel = [&](int64_t p) {
    PanelSource from = {
        source.dtype, static_cast<int>(std::min<int64_t>(kPanel, weight.n_ - p * kPanel)), {}};
    for (int c = 0; c < from.columns; ++c) {
      const int64_t i = p * kPanel + c;
      from.row[c] = rows + (row_order.empty() ? i : row_order[i]) * row_bytes;
    }
    void* panel = static_cast<uint8_t*>(weight.buffer_.data()) + p * weight.panel_bytes_;
    if (IsQuantized(*format)) {
      decoding[p] = PackQuantized(from, weight.k_, *format, weight.order_, static_cast<uint8_t*>(panel));
    } else {
      const bool done = source.dtype == DType::kBF16 && *format == PackedFormat::kBf16 &&
                        PackPairs(from, weight.k_, static_cast<uint32_t*>(panel));
      if (!done) PackPlain(from, weight.k_, *format, compute, panel);
    }
  };
  const int64_t batch = std::max<int64_t>(1, kBatchBytes / (kPanel * row_bytes));
  for (int64_t begin = 0; begin < weight.panels(); begin += batch) {
    context.pool.ParallelFor(std::min(batch, weight.panels() - begin),
                             [&](int64_t i, int) { pack_panel(begin + i); });
    if (batch_done) batch_done();
  }
  weight.decoding_ = *std::ranges::min_element(decoding);
  return weight;
}

}  // namespace plumbline

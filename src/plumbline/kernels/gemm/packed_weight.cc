#include "plumbline/kernels/gemm/packed_weight.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "plumbline/kernels/gemm/block_integers.h"
#include "plumbline/kernels/gemm/gemm_plan.h"
#include "plumbline/kernels/gemm/pack_panel.h"

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
      PackFloats(from, weight.k_, *format, compute, panel);
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

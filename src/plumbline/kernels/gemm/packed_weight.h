// A weight matrix [n, k] in the layout the matmul kernels stream.
//
// The value of an element (numerics contract, section 3) is its dequantised float32, rounded to bf16 when
// the compute type is bf16. That value, not the storage, defines every result: how a weight is stored
// (quantised, bf16, float32) never changes a bit. Where the compute type is int8 a quantised weight is its
// integers, scales and minima, and any other weight is computed as bf16.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "plumbline/base/dtype.h"
#include "plumbline/base/status.h"
#include "plumbline/kernels/gemm/packed_format.h"
#include "plumbline/kernels/kernel_context.h"
#include "plumbline/tensor/buffer_arena.h"
#include "plumbline/tensor/raw_tensor.h"

namespace plumbline {

class PackedWeight {
 public:
  // Packs `source` [n, k] (k a multiple of its block), in parallel. `leaf` is the length of a leaf of the
  // dyadic reduction over k: a multiple of the quantisation block (or of 2), at most 256. Row i of the
  // packed weight is source row row_order[i] where row_order is not empty; rows may repeat or be left out.
  // Anything else, and a type that holds no weights, is InvalidInput naming the tensor.
  //
  // Storage: quantised types keep their integers; f32 and f16 become float32 where that is the compute type,
  // else bf16; bf16 stays bf16. Quantised ones take the order of lanes that the context's instruction set
  // multiplies fastest; every other one reads it too. It comes from `arena`, where given. `batch_done`, where
  // given, is called now and then while no thread reads the source: a caller that maps it from a file can let
  // the pages read so far go.
  static Result<PackedWeight> Pack(const KernelContext& context, const RawTensor& source, Compute compute,
                                   int64_t leaf, std::span<const int32_t> row_order = {},
                                   BufferArena* arena = nullptr,
                                   const std::function<void()>& batch_done = {});

  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  int64_t leaf() const { return leaf_; }
  Compute compute() const { return compute_; }  // kInt8 of a quantised type alone
  PackedFormat format() const { return format_; }
  PanelOrder order() const { return order_; }
  Decoding decoding() const { return decoding_; }  // of a quantised format
  int64_t panels() const { return (n_ + kPanel - 1) / kPanel; }
  int64_t panel_bytes() const { return panel_bytes_; }
  int64_t bytes() const { return panels() * panel_bytes_; }
  const void* Panel(int64_t panel) const {
    return static_cast<const char*>(buffer_.data()) + panel * panel_bytes_;
  }

  // What Pack would allocate, for `info` and admission.
  // 0 for a type that holds no weights.
  static int64_t PackedBytes(DType dtype, int64_t n, int64_t k, Compute compute);

 private:
  int64_t n_ = 0;
  int64_t k_ = 0;
  int64_t leaf_ = 0;
  int64_t panel_bytes_ = 0;
  Compute compute_ = Compute::kBf16;
  PackedFormat format_ = PackedFormat::kBf16;
  PanelOrder order_ = PanelOrder::kPairs;
  Decoding decoding_ = Decoding::kAny;
  Buffer buffer_;
};

}  // namespace plumbline

// Matrix multiplication in the contract's order (numerics contract, sections 2 and 3):
//
//   y[m, n] = sum_k x[m, k] * w[n, k]
//
// x float32, rounded once to the weight's compute type; per output one chain of fused multiply-adds a
// leaf, k ascending from +0; leaves combined by the dyadic tree. The same bits for every m, tile, thread
// count and instruction set. gemm_twin.h is the scalar definition, int8_twin.h that of Compute::kInt8, where
// a step of the chain is a group of the weight's integers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "plumbline/kernels/gemm/packed_weight.h"
#include "plumbline/tensor/buffer.h"
#include "plumbline/tensor/matrix.h"

namespace plumbline {

// Activations rounded to the compute type and laid out for the kernels of the context's instruction set.
// Reused from step to step: grows to the largest size it has held. One object serves one matmul at a time
// (it also holds the scratch of the threads that run it).
class PackedActivations {
 public:
  // x [m, k] float32, any alignment. Fails only where the system has no memory. Of several compute types,
  // those of the weights that x will be multiplied with, kBf16 and kF32 exclude each other.
  Status Pack(const KernelContext& context, MatrixView<const float> x, Compute compute);
  Status Pack(const KernelContext& context, MatrixView<const float> x, std::span<const Compute> computes);

  // So that no Pack of at most `values` numbers (m times even k), of at most `k` columns, needs memory.
  // Of kInt8 both its own form and that of weights without integers.
  Status Reserve(const KernelContext& context, int64_t values, int64_t k, Compute compute);

  int64_t m() const { return m_; }
  int64_t k() const { return k_; }
  Isa isa() const { return isa_; }
  bool Holds(Compute compute) const { return compute == Compute::kInt8 ? integers_ : floats_ == compute; }
  const void* Data(Compute compute) const { return (compute == Compute::kInt8 ? quads_ : buffer_).data(); }

 private:
  Status PackForm(const KernelContext& context, MatrixView<const float> x, Compute compute);
  friend void Gemm(const KernelContext& context, const PackedActivations& x,
                   std::span<const struct GemmJob> jobs);

  int64_t m_ = 0;
  int64_t k_ = 0;
  Isa isa_ = Isa::kAvx2;
  std::optional<Compute> floats_;  // kBf16 or kF32
  bool integers_ = false;
  Buffer buffer_;
  Buffer quads_;
  Buffer scratch_;  // a dequantised panel for each thread
};

struct GemmJob {
  const PackedWeight* weight = nullptr;
  MatrixView<float> y;          // [m, n]
  const float* bias = nullptr;  // [n], added to the finished sum; or null
  bool accumulate = false;      // y += result instead of y = result (after the bias)
};

// All jobs share x, packed for the same context, and run in one fork-join, column panels handed out from a
// counter. Every weight has x's k and a compute type that x holds. y must not overlap x or another job's y.
void Gemm(const KernelContext& context, const PackedActivations& x, std::span<const GemmJob> jobs);

// One thread's part: y[r, c] for rows [row_begin, row_end) and columns [col_begin, col_end) of the weight,
// into y[(r - row_begin), (c - col_begin)]. col_begin is a multiple of kPanel. The bits are Gemm's.
// `isa` is the one x was packed for. `scratch` belongs to the calling thread and grows as needed. Runs under
// the caller's ScopedFloatEnv.
struct GemmScratch {
  Buffer panel;  // a decoded one
};
void GemmBlock(Isa isa, const PackedActivations& x, int64_t row_begin, int64_t row_end,
               const PackedWeight& weight, int64_t col_begin, int64_t col_end, MatrixView<float> y,
               GemmScratch& scratch);

}  // namespace plumbline

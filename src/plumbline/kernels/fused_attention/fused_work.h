// What the passes of fused attention share: the plan, the operands as the kernels take them, packed keys.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "plumbline/kernels/attention/attention_kernels.h"
#include "plumbline/kernels/fused_attention/fused_attention.h"
#include "plumbline/kernels/fused_attention/fused_kernels.h"
#include "plumbline/kernels/fused_attention/token_plan.h"
#include "plumbline/tensor/buffer.h"

namespace plumbline {

// Float kernels where `floats` or the type is not bf16; for bf16 what `products` says, the faster ones of
// this machine if kAuto.
const FusedKernels& FusedKernelsOf(Isa isa, DType dtype, FusedProducts products, bool floats);

// Floats that a pass keeps from one call of its thread to the next, so that memory is not paged in again each
// time. An error where the system has no more.
class FusedMemory {
 public:
  Result<float*> Floats(int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
    if (buffer_.bytes() < bytes) {
      buffer_ = Buffer();
      ASSIGN_OR_RETURN(buffer_, Buffer::Allocate(bytes));
    }
    return static_cast<float*>(buffer_.data());
  }

 private:
  Buffer buffer_;
};

// A run of batch rows that is packed and worked on at a time.
struct FusedChunk {
  int64_t batch_begin = 0, batch_end = 0;
  int64_t row_begin = 0, row_end = 0;  // row blocks
  int64_t key_begin = 0, key_end = 0;  // key blocks

  int64_t rows() const { return row_end - row_begin; }
  int64_t keys() const { return key_end - key_begin; }
};

class FusedWork {
 public:
  FusedWork(const KernelContext& context, const FusedAttentionShape& shape,
            const FusedAttentionOptions& options, const FusedAttentionInputs& inputs, bool floats);

  const KernelContext& context;
  const FusedAttentionShape& shape;
  const FusedAttentionOptions& options;
  const FusedAttentionInputs& inputs;
  const FusedKernels& kernels;
  const int64_t group;
  FusedCall call;
  FusedTokenPlan plan;

  FusedSource SourceOf(const FusedOperand<const void>& operand, int64_t b, int64_t head, int64_t dim) const;
  FusedTarget TargetOf(const FusedOperand<void>& operand, int64_t b, int64_t head, int64_t dim) const;

  float SinkOf(int64_t h) const;  // -inf: none

  // `count` rows of head h from slot `slot` of the plan's row arrays on, q and the backward's members aside.
  FusedRows RowsOf(int64_t b, int64_t h, int64_t slot, int32_t count) const;
  // The keys of a segment, packed members aside.
  FusedKeys KeysOf(int64_t key_begin) const;

  // Chunks of at least one batch row whose packed floats, given those of a row and a key block, stay below
  // 64 MiB; all in one chunk where `whole`.
  std::vector<FusedChunk> Chunks(int64_t floats_of_row_block, int64_t floats_of_key_block, bool whole) const;

  // Zero in the padding tokens of batch rows of a chunk.
  void ZeroPadding(const FusedChunk& chunk, const std::vector<std::vector<int32_t>>& padding,
                   const FusedOperand<void>& operand, int64_t heads, int64_t dim) const;

 private:
  std::vector<uint32_t> dropout_rows_;     // [row_blocks, 64]
  std::vector<uint32_t> dropout_columns_;  // [key_blocks, 64]
};

}  // namespace plumbline

// A fused attention call as XLA hands it over: buffers, results and attributes, read into what
// kernels/fused_attention takes.
//
// Every operand has a leading dimension of N groups, or of 1 where all groups share it. A group is a call of
// its own (jax.vmap), so that its maxima, its dropout pattern and the gradient of its bias are those of the
// call without vmap.
//
//   operand  shape after the groups                                         dtype
//   0-2      q, k, v: [B, S, H, D]; as many times the same packed array     f32, bf16, f16
//            [B, S, 2, H, D] (k, v) or [B, S, 3, H, D] (q, k, v)
//   3        bias [1 | B, 1 | heads, Sq, Skv], or empty                     that of q
//   4        sink [heads], or empty                                         f32
//   5-8      segments of q and of kv, positions of q and of kv: [B, S] or   s32
//            empty (all one segment; 0, 1, 2, ...)
//   9        seed [2] (u32)       10  first batch row and head of this part of a larger call [2] (s32)
//   11-13    backward: out, d_out [B, Sq, heads, Dv]; lse [B, heads, Sq] (f32)
#pragma once

#include <xla/ffi/api/ffi.h>

#include <cstdint>
#include <string>
#include <vector>

#include "plumbline/base/status.h"
#include "plumbline/kernels/fused_attention/attention_tokens.h"
#include "plumbline/kernels/fused_attention/fused_attention.h"

namespace plumbline {

enum class FfiOperand : uint8_t {
  kQ,
  kK,
  kV,
  kBias,
  kSink,
  kQSegments,
  kKvSegments,
  kQPositions,
  kKvPositions,
  kSeed,
  kOrigin,
  kOut,
  kDOut,
  kLse
};

class FusedAttentionCall {
 public:
  // Errors: an attribute that is missing, operands of another rank or dtype than the table says.
  static Result<FusedAttentionCall> Read(xla::ffi::RemainingArgs arguments, xla::ffi::Dictionary attributes);

  int64_t groups() const { return groups_; }
  const FusedAttentionShape& shape() const { return shape_; }
  int packed() const { return packed_; }  // arrays in one: 1, 2 (k, v) or 3 (q, k, v)
  DType result_dtype() const { return options_.float32_results ? DType::kF32 : shape_.dtype; }

  FusedAttentionOptions Options(int64_t group) const;

  // Those of a group, with the positions that a mask aligned at the bottom right needs in `tokens`. Error: a
  // row of more segments than the attribute max_segments says (0: any number).
  Result<FusedAttentionInputs> Inputs(int64_t group, FusedTokenPair* tokens) const;

  // A dense array [B, tokens, heads, dim] of a group.
  FusedOperand<const void> Dense(FfiOperand which, int64_t group, int64_t tokens, int64_t heads,
                                 int64_t dim) const;
  const float* Floats(FfiOperand which, int64_t group) const {
    return static_cast<const float*>(Data(which, group));
  }

 private:
  const xla::ffi::AnyBuffer& Buffer(FfiOperand which) const { return buffers_[static_cast<int>(which)]; }
  const void* Data(FfiOperand which, int64_t group) const;
  Status ReadShape();
  Status ReadAttributes(xla::ffi::Dictionary attributes);
  FusedOperand<const void> Projection(FfiOperand which, int64_t group) const;
  Status CheckSegments(const int32_t* segments, int64_t tokens) const;

  std::vector<xla::ffi::AnyBuffer> buffers_;
  FusedAttentionShape shape_;
  FusedAttentionOptions options_;
  int64_t groups_ = 1;
  int packed_ = 1;
  bool bottom_right_ = false;
  int64_t max_segments_ = 0;
};

// A dense result [N, B, tokens, members, heads, dim], one member of it, of a group.
FusedOperand<void> DenseResult(void* data, DType dtype, const FusedAttentionShape& shape, int64_t group,
                               int64_t tokens, int64_t members, int64_t member, int64_t heads, int64_t dim);

}  // namespace plumbline

// Fused attention, forward and backward, over tokens in arrays (training and JAX), of one family with the
// decoder's paged attention (../attention): the same scores, the same blocks of 64 keys, the same tree.
//
// For batch row b, query head h of KV head g = h / (heads / kv_heads), query token i, key token j:
//
//   x       = scale * raw | scale * (raw + bias) | scale * raw + bias,    raw = dot(q[b,i,h], k[b,j,g])
//   allowed = segments equal and not 0, and with c = position of i, p = position of j:
//             p <= c where causal;  c - left <= p where left >= 0;  p <= c + right where right >= 0
//   lse     = log(sink + sum over allowed j of exp(x)),   sink = 0 | 1 | exp(sink[h])
//   out     = sum over allowed j of dropout(exp(x - lse)) v[b,j,g];   0 where nothing is allowed
//   max_logit[h] = max of x over all b, i and allowed j; -inf where nothing is allowed; NaN if one is NaN
//
// A token of segment 0 is padding: nothing of it is read but its segment, and its out and gradients are 0. A
// row's result depends on its own query and the keys of its segment that it may see, in the order of their
// positions: not on where tokens lie, on threads or instruction sets, or on what else the batch holds.
// fused_attention_twin.h and fused_attention_grad_twin.h have every operation, in order;
// docs/fused_attention.md says what follows from it.
#pragma once

#include <cstdint>

#include "plumbline/base/dtype.h"
#include "plumbline/base/status.h"
#include "plumbline/kernels/kernel_context.h"

namespace plumbline {

enum class FusedBias : uint8_t { kNone, kPreScale, kPostScale };
enum class FusedSoftmax : uint8_t { kVanilla, kOffByOne, kLearnable };

// How bf16 products are computed: widened to float32, or with vdpbf16ps where there is that instruction. The
// bits are the same; kAuto takes what is faster on this machine.
enum class FusedProducts : uint8_t { kAuto, kFloats, kPairs };

struct FusedAttentionShape {
  DType dtype = DType::kBF16;  // kF32, kBF16 or kF16: of q, k, v, bias, out and all gradients but the sink's
  int64_t batch = 0;
  int64_t q_tokens = 0;
  int64_t kv_tokens = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads
  int64_t qk_dim = 0;
  int64_t v_dim = 0;
};

// An array [batch, tokens, heads, dim] by strides, counted in elements; the last axis is contiguous. So a
// member of a packed [B, S, 3, H, D] is data + member * H * D with strides {S * 3 * H * D, 3 * H * D, D}.
template <typename T>
struct FusedOperand {
  T* data = nullptr;
  int64_t batch_stride = 0;
  int64_t token_stride = 0;
  int64_t head_stride = 0;
};

// Who each token is, both [batch, tokens] or null. Any order of tokens: positions alone decide, so that a
// stripe or a chunk of a longer sequence is given as it lies. attention_tokens.h makes them from every form
// of descriptor.
struct FusedTokenIds {
  const int32_t* segments = nullptr;   // 0: padding; null: all 1
  const int32_t* positions = nullptr;  // inside the segment; null: 0, 1, 2, ...
};

// A kept probability is multiplied by 1 / (1 - probability), another becomes 0. Which are kept is a function
// of (seed, batch, head, row, column) alone (fused_dropout.h). A shard of a larger call gives where it lies
// in it.
struct FusedDropout {
  float probability = 0.0f;  // 0: none; below 1
  uint32_t seed[2] = {0, 0};
  int64_t batch_offset = 0;
  int64_t head_offset = 0;
  int64_t row_offset = 0;            // row of query token i: row_offset + i
  int64_t column_offset = 0;         // column of key token j: column_offset + j
  const int32_t* rows = nullptr;     // [q_tokens] or null: row of query token i, instead
  const int32_t* columns = nullptr;  // [kv_tokens] or null: column of key token j, instead
};

struct FusedAttentionOptions {
  float scale = 1.0f;
  bool causal = false;
  int64_t left = -1;   // -1: no limit
  int64_t right = -1;  // -1: no limit
  FusedBias bias_type = FusedBias::kNone;
  int64_t bias_batch = 1;  // 1 or batch
  int64_t bias_heads = 1;  // 1 or heads
  FusedSoftmax softmax = FusedSoftmax::kVanilla;
  FusedDropout dropout = {};
  FusedProducts products = FusedProducts::kAuto;
  // Out and gradients are float32, whatever dtype is: for sums over ring steps.
  bool float32_results = false;
};

struct FusedAttentionInputs {
  FusedOperand<const void> q;  // [batch, q_tokens, heads, qk_dim]
  FusedOperand<const void> k;  // [batch, kv_tokens, kv_heads, qk_dim]
  FusedOperand<const void> v;  // [batch, kv_tokens, kv_heads, v_dim]
  FusedTokenIds q_ids = {};
  FusedTokenIds kv_ids = {};
  const void* bias = nullptr;   // [bias_batch, bias_heads, q_tokens, kv_tokens], dense
  const float* sink = nullptr;  // [heads], for kLearnable
};

struct FusedAttentionOutputs {
  FusedOperand<void> out;        // [batch, q_tokens, heads, v_dim]
  float* lse = nullptr;          // [batch, heads, q_tokens]; -inf for padding and where the sum is empty
  float* max_logit = nullptr;    // [max_logit_groups, heads] or null; written, not raised
  int64_t max_logit_groups = 1;  // divides batch: group n is the n-th run of batch / groups rows
};

// No output overlaps an input or another output. Errors: a shape, option or pointer that cannot be used, and
// no memory for the working copies of k and v (linear in tokens; nothing here grows with q_tokens *
// kv_tokens).
Status FusedAttention(const KernelContext& context, const FusedAttentionShape& shape,
                      const FusedAttentionOptions& options, const FusedAttentionInputs& inputs,
                      const FusedAttentionOutputs& outputs);

// What the forward pass left, and the gradient of its output. `lse` and `out` may be those of a larger set of
// keys than this call's (a ring step): the gradients are then this step's part.
struct FusedAttentionSaved {
  FusedOperand<const void> out;    // dtype
  FusedOperand<const void> d_out;  // [batch, q_tokens, heads, v_dim], dtype
  const float* lse = nullptr;      // [batch, heads, q_tokens]
};

struct FusedAttentionGrads {
  FusedOperand<void> dq;
  FusedOperand<void> dk;
  FusedOperand<void> dv;
  void* d_bias = nullptr;   // shape of bias, or null
  float* d_sink = nullptr;  // [heads] or null
};

//   delta = dot(d_out, out);  P = exp(x - lse);  keep = 0 or 1 / (1 - probability)
//   dS = P * (keep * dot(d_out, v) - delta);     dV_j = sum over heads of the group and i of keep * P *
//   d_out_i dQ_i = scale * sum over j of dS k_j;         dK_j = scale * sum over heads of the group and i of
//   dS q_i d_bias = dS (kPostScale) or scale * dS (kPreScale), summed over what it was broadcast along
//   d_sink[h] = - sum over b, i of exp(sink[h] - lse) * delta
Status FusedAttentionGrad(const KernelContext& context, const FusedAttentionShape& shape,
                          const FusedAttentionOptions& options, const FusedAttentionInputs& inputs,
                          const FusedAttentionSaved& saved, const FusedAttentionGrads& grads);

}  // namespace plumbline

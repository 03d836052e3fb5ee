#include "plumbline/kernels/fused_attention/fused_attention_check.h"

#include <limits>

namespace plumbline {
namespace {

Status CheckShape(const FusedAttentionShape& s) {
  if (s.dtype != DType::kF32 && s.dtype != DType::kBF16 && s.dtype != DType::kF16) {
    return InvalidInput("dtype: got {}, want f32, bf16 or f16 (fused attention)", Info(s.dtype).name);
  }
  for (const int64_t size : {s.batch, s.q_tokens, s.kv_tokens}) {
    if (size < 0 || size > std::numeric_limits<int32_t>::max()) {
      return InvalidInput("batch or tokens: got {}, want 0 to 2^31 - 1 (fused attention)", size);
    }
  }
  if (s.heads < 1 || s.kv_heads < 1 || s.heads % s.kv_heads != 0) {
    return InvalidInput("heads: got {}, want a multiple of the {} KV heads (fused attention)", s.heads,
                        s.kv_heads);
  }
  if (s.qk_dim < 1 || s.v_dim < 1) {
    return InvalidInput("head sizes: got {} and {}, want at least 1 (fused attention)", s.qk_dim, s.v_dim);
  }
  return {};
}

template <typename T>
Status CheckOperand(const char* name, const FusedOperand<T>& operand, int64_t elements) {
  if (operand.data != nullptr || elements == 0) return {};
  return InvalidInput("{}: got no data, want an array (fused attention)", name);
}

}  // namespace

Status CheckFusedAttention(const FusedAttentionShape& shape, const FusedAttentionOptions& options,
                           const FusedAttentionInputs& inputs) {
  RETURN_IF_ERROR(CheckShape(shape));
  if (options.left < -1 || options.right < -1) {
    return InvalidInput("window: got ({}, {}), want -1 or more (fused attention)", options.left,
                        options.right);
  }
  const float p = options.dropout.probability;
  if (!(p >= 0.0f && p < 1.0f)) {
    return InvalidInput("dropout probability: got {}, want at least 0 and less than 1 (fused attention)", p);
  }
  if ((options.bias_batch != 1 && options.bias_batch != shape.batch) ||
      (options.bias_heads != 1 && options.bias_heads != shape.heads)) {
    return InvalidInput("bias shape: got [{}, {}], want 1 or {} and 1 or {} (fused attention)",
                        options.bias_batch, options.bias_heads, shape.batch, shape.heads);
  }
  const int64_t rows = shape.batch * shape.q_tokens, keys = shape.batch * shape.kv_tokens;
  if ((options.bias_type != FusedBias::kNone) != (inputs.bias != nullptr) && rows * shape.kv_tokens > 0) {
    return InvalidInput("bias: got {}, want {} (fused attention)", inputs.bias != nullptr ? "one" : "none",
                        inputs.bias != nullptr ? "none, as the bias type says" : "one");
  }
  if (options.softmax == FusedSoftmax::kLearnable && inputs.sink == nullptr) {
    return InvalidInput("sink: got none, want [{}] for the learnable softmax (fused attention)", shape.heads);
  }
  RETURN_IF_ERROR(CheckOperand("q", inputs.q, rows));
  RETURN_IF_ERROR(CheckOperand("k", inputs.k, keys));
  return CheckOperand("v", inputs.v, keys);
}

Status CheckFusedOutputs(const FusedAttentionShape& shape, const FusedAttentionOutputs& outputs) {
  const int64_t rows = shape.batch * shape.q_tokens;
  RETURN_IF_ERROR(CheckOperand("out", outputs.out, rows));
  if (outputs.lse == nullptr && rows > 0) {
    return InvalidInput("lse: got no data, want an array (fused attention)");
  }
  if (outputs.max_logit_groups < 1 || shape.batch % outputs.max_logit_groups != 0) {
    return InvalidInput("max_logit groups: got {}, want a divisor of the batch of {} (fused attention)",
                        outputs.max_logit_groups, shape.batch);
  }
  return {};
}

Status CheckFusedGrads(const FusedAttentionShape& shape, const FusedAttentionOptions& options,
                       const FusedAttentionSaved& saved, const FusedAttentionGrads& grads) {
  const int64_t rows = shape.batch * shape.q_tokens, keys = shape.batch * shape.kv_tokens;
  RETURN_IF_ERROR(CheckOperand("saved out", saved.out, rows));
  RETURN_IF_ERROR(CheckOperand("gradient of out", saved.d_out, rows));
  if (saved.lse == nullptr && rows > 0) {
    return InvalidInput("lse: got no data, want an array (fused attention)");
  }
  if (grads.d_bias != nullptr && options.bias_type == FusedBias::kNone) {
    return InvalidInput("gradient of bias: got an array, want none without a bias (fused attention)");
  }
  if (grads.d_sink != nullptr && options.softmax != FusedSoftmax::kLearnable) {
    return InvalidInput("gradient of sink: got an array, want none but for the learnable softmax");
  }
  RETURN_IF_ERROR(CheckOperand("dq", grads.dq, rows));
  RETURN_IF_ERROR(CheckOperand("dk", grads.dk, keys));
  return CheckOperand("dv", grads.dv, keys);
}

}  // namespace plumbline

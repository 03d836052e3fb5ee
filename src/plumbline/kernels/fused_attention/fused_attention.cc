#include "plumbline/kernels/fused_attention/fused_attention.h"

#include "plumbline/base/float_env.h"
#include "plumbline/kernels/fused_attention/fused_attention_check.h"
#include "plumbline/kernels/fused_attention/fused_attention_grad_twin.h"
#include "plumbline/kernels/fused_attention/fused_attention_twin.h"

namespace plumbline {

Status FusedAttention(const KernelContext& /*context*/, const FusedAttentionShape& shape,
                      const FusedAttentionOptions& options, const FusedAttentionInputs& inputs,
                      const FusedAttentionOutputs& outputs) {
  RETURN_IF_ERROR(CheckFusedAttention(shape, options, inputs));
  RETURN_IF_ERROR(CheckFusedOutputs(shape, outputs));
  const ScopedFloatEnv env;
  FusedAttentionTwin(shape, options, inputs, outputs);
  return {};
}

Status FusedAttentionGrad(const KernelContext& /*context*/, const FusedAttentionShape& shape,
                          const FusedAttentionOptions& options, const FusedAttentionInputs& inputs,
                          const FusedAttentionSaved& saved, const FusedAttentionGrads& grads) {
  RETURN_IF_ERROR(CheckFusedAttention(shape, options, inputs));
  RETURN_IF_ERROR(CheckFusedGrads(shape, options, saved, grads));
  const ScopedFloatEnv env;
  FusedAttentionGradTwin(shape, options, inputs, saved, grads);
  return {};
}

}  // namespace plumbline

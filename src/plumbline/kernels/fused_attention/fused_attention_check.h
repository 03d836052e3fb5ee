// What a call to fused attention must satisfy before anything is computed.
#pragma once

#include "plumbline/kernels/fused_attention/fused_attention.h"

namespace plumbline {

Status CheckFusedAttention(const FusedAttentionShape& shape, const FusedAttentionOptions& options,
                           const FusedAttentionInputs& inputs);
Status CheckFusedOutputs(const FusedAttentionShape& shape, const FusedAttentionOutputs& outputs);
Status CheckFusedGrads(const FusedAttentionShape& shape, const FusedAttentionOptions& options,
                       const FusedAttentionSaved& saved, const FusedAttentionGrads& grads);

}  // namespace plumbline

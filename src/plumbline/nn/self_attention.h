// Grouped-query self-attention with rotary positions, optional biases, qk-norm and sliding window.
#pragma once

#include <vector>

#include "plumbline/nn/decoder_config.h"
#include "plumbline/nn/linear.h"
#include "plumbline/nn/step.h"
#include "plumbline/nn/workspace.h"

namespace plumbline {

struct SelfAttention {
  Linear q_proj, k_proj, v_proj, o_proj;
  std::vector<float> q_norm, k_norm;  // [head_dim] with qk_norm, else empty

  // workspace.hidden += o_proj(attention(workspace.normed)). cos and sin of the step's positions are in the
  // workspace. max_logit: [B, heads] or null.
  Status Forward(const KernelContext& context, const DecoderConfig& config, const KvLayout& kv, int64_t layer,
                 const DecoderStep& step, float* max_logit, DecoderWorkspace& workspace) const;
};

}  // namespace plumbline

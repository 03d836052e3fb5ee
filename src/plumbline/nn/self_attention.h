// Grouped-query self-attention with rotary positions, optional biases, qk-norm and sliding window. Heads are
// cut over the tensor-parallel ranks, KV pages over the context-parallel ones.
#pragma once

#include <vector>

#include "plumbline/nn/context_attention.h"
#include "plumbline/nn/decoder_config.h"
#include "plumbline/nn/linear.h"
#include "plumbline/nn/row_parallel_linear.h"
#include "plumbline/nn/step.h"
#include "plumbline/nn/workspace.h"

namespace plumbline {

struct SelfAttention {
  Linear q_proj, k_proj, v_proj;  // rows of the rank's heads
  RowParallelLinear o_proj;
  std::vector<float> q_norm, k_norm;  // [head_dim] with qk_norm, else empty

  // workspace.hidden += o_proj(attention(workspace.normed)). cos and sin of the step's positions are in the
  // workspace. `layer` counts within the stage, as `kv` does; `window` as in AttentionOptions.
  Status Forward(const RankContext& rank, const DecoderConfig& config, const KvLayout& kv, int64_t layer,
                 int32_t window, const DecoderStep& step, const AttentionObserver& observer,
                 DecoderWorkspace& workspace) const;
};

}  // namespace plumbline

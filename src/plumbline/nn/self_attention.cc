#include "plumbline/nn/self_attention.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "plumbline/kernels/norm/norm.h"
#include "plumbline/kernels/rotary/rotary.h"

namespace plumbline {

Status SelfAttention::Forward(const RankContext& rank, const DecoderConfig& config, const KvLayout& kv,
                              int64_t layer, int32_t window, const DecoderStep& step,
                              const AttentionObserver& observer, DecoderWorkspace& workspace) const {
  const KernelContext& context = rank.kernel;
  const int64_t tokens = step.rows();
  const MatrixView<float> q = workspace.q.Rows(0, tokens);
  const MatrixView<float> k = workspace.k.Rows(0, tokens);
  const MatrixView<float> v = workspace.v.Rows(0, tokens);
  const MatrixView<float> attended = workspace.context.Rows(0, tokens);
  const MatrixView<float> cos = workspace.cos.Rows(0, tokens);
  const MatrixView<float> sin = workspace.sin.Rows(0, tokens);

  RETURN_IF_ERROR(workspace.packed.Pack(
      context, workspace.normed.Rows(0, tokens),
      std::array{q_proj.weight.compute(), k_proj.weight.compute(), v_proj.weight.compute()}));
  Gemm(context, workspace.packed, std::array{q_proj.Job(q), k_proj.Job(k), v_proj.Job(v)});
  if (config.qk_norm) {
    RmsNormHeads(context, q, config.head_dim, q_norm.data(), config.norm_eps);
    RmsNormHeads(context, k, config.head_dim, k_norm.data(), config.norm_eps);
  }
  ApplyRope(context, cos, sin, config.head_dim, q);
  ApplyRope(context, cos, sin, config.head_dim, k);
  if (observer.queries != nullptr) CopyRows(q, *observer.queries);
  if (observer.keys != nullptr) CopyRows(k, *observer.keys);
  const int64_t kept = step.batch.row_offsets.back();
  StoreKv(context, kv, step.batch, layer, k.Rows(0, kept), v.Rows(0, kept));

  const AttentionOptions options{
      .scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim)),
      .window = window,
      .max_logit = observer.max_logit,
  };
  RETURN_IF_ERROR(ContextAttention(rank, kv, step.batch, layer, rank.shard.heads.size(), q.Rows(0, kept),
                                   options, workspace.context_attention, attended.Rows(0, kept)));
  for (int64_t row = kept; row < tokens; ++row) std::fill_n(attended.Row(row), attended.cols, 0.0f);
  return o_proj.Accumulate(rank, attended, workspace, workspace.hidden.Rows(0, tokens));
}

}  // namespace plumbline

#include "plumbline/nn/decoder.h"

#include <algorithm>

#include "plumbline/base/check.h"
#include "plumbline/kernels/norm/norm.h"

namespace plumbline {
namespace {

AttentionObserver ObserverOf(const DecoderObservers& observers, const DecoderShard& shard, int64_t layer) {
  AttentionObserver of;
  if (observers.max_logits != nullptr) {
    of.max_logit = observers.max_logits + layer * observers.sequences * shard.heads.size();
  }
  if (!observers.queries.empty()) of.queries = &observers.queries[layer];
  if (!observers.keys.empty()) of.keys = &observers.keys[layer];
  return of;
}

}  // namespace

int64_t Decoder::WeightBytes(bool with_layers) const {
  int64_t bytes = embedding.weight != nullptr ? embedding.weight->bytes() : 0;
  if (head.weight != nullptr && head.weight != embedding.weight) bytes += head.weight->bytes();
  if (!with_layers) return bytes;
  for (const DecoderLayer& layer : *layers) {
    const SelfAttention& a = layer.attention;
    const GatedMlp& m = layer.mlp;
    for (const Linear* linear : {&a.q_proj, &a.k_proj, &a.v_proj, &m.gate_proj, &m.up_proj})
      bytes += linear->WeightBytes();
    bytes += a.o_proj.WeightBytes() + m.down_proj.WeightBytes() + layer.experts.WeightBytes();
  }
  return bytes;
}

WorkspaceSizes Decoder::Workspace(int64_t tokens, int64_t all_tokens) const {
  WorkspaceSizes sizes{.tokens = tokens, .all_tokens = all_tokens};
  const auto add = [&](const RowParallelLinear& linear) {
    sizes.sum_nodes = std::max(sizes.sum_nodes, static_cast<int64_t>(linear.parts.size()));
    sizes.exchanges = sizes.exchanges || linear.Exchanges();
  };
  for (const DecoderLayer& layer : *layers) {
    add(layer.attention.o_proj);
    add(layer.experts.experts.empty() ? layer.mlp.down_proj : layer.experts.experts.front().down_proj);
  }
  return sizes;
}

Status Decoder::Forward(const RankContext& rank, const KvLayout& kv, const DecoderStep& step,
                        const DecoderObservers& observers, DecoderWorkspace& workspace) const {
  const KernelContext& context = rank.kernel;
  const int64_t tokens = step.rows();
  PLUMBLINE_CHECK(tokens <= workspace.max_tokens());
  const MatrixView<float> hidden = workspace.hidden.Rows(0, tokens);
  const MatrixView<float> normed = workspace.normed.Rows(0, tokens);

  workspace.context_attention.BeginStep();
  if (shard.FirstStage()) RETURN_IF_ERROR(embedding.Forward(rank, step, workspace, hidden));
  RopeTables(context, step.declared.Constant(config.declares, kRopeFrequencies),
             step.declared.Constant(config.declares, kRopeAttention)[0], step.positions,
             workspace.cos.Rows(0, tokens), workspace.sin.Rows(0, tokens));
  // A replica without rows may still hold experts of others'.
  if (step.tokens.empty() || (tokens == 0 && shard.degrees.ep == 1)) return {};
  size_t captured = std::ranges::lower_bound(observers.layers, shard.layers.begin) - observers.layers.begin();
  for (int64_t i = 0; i < shard.layers.size(); ++i) {
    const DecoderLayer& layer = (*layers)[i];
    const int64_t number = shard.layers.begin + i;
    if (tokens > 0) {
      RmsNorm(context, hidden, layer.attention_norm.data(), config.norm_eps, normed);
      RETURN_IF_ERROR(layer.attention.Forward(rank, config, kv, i, config.window[number], step,
                                              ObserverOf(observers, shard, i), workspace));
      RmsNorm(context, hidden, layer.mlp_norm.data(), config.norm_eps, normed);
    }
    if (config.Sparse(number)) {
      RETURN_IF_ERROR(layer.experts.Forward(rank, config, step, workspace));
    } else if (tokens > 0) {
      RETURN_IF_ERROR(layer.mlp.Forward(rank, config, tokens, workspace));
    }
    if (captured < observers.layers.size() && observers.layers[captured] == number) {
      CopyRows(hidden, observers.hidden[captured++]);
    }
  }
  return {};
}

}  // namespace plumbline

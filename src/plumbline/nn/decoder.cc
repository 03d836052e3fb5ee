#include "plumbline/nn/decoder.h"

#include <algorithm>

#include "plumbline/base/check.h"
#include "plumbline/kernels/embedding/embedding.h"
#include "plumbline/kernels/norm/norm.h"

namespace plumbline {
namespace {

int64_t Bytes(const Linear& linear) {
  return linear.weight.bytes() + static_cast<int64_t>(linear.bias.size() * sizeof(float));
}

void Capture(MatrixView<const float> hidden, MatrixView<float> out) {
  for (int64_t row = 0; row < hidden.rows; ++row) std::copy_n(hidden.Row(row), hidden.cols, out.Row(row));
}

}  // namespace

int64_t Decoder::WeightBytes() const {
  int64_t bytes = embedding->bytes() + (config.tied_head ? 0 : head.weight->bytes());
  for (const DecoderLayer& layer : layers) {
    const SelfAttention& a = layer.attention;
    const GatedMlp& m = layer.mlp;
    for (const Linear* linear :
         {&a.q_proj, &a.k_proj, &a.v_proj, &a.o_proj, &m.gate_proj, &m.up_proj, &m.down_proj}) {
      bytes += Bytes(*linear);
    }
  }
  return bytes;
}

Status Decoder::Forward(const KernelContext& context, const KvLayout& kv, const DecoderStep& step,
                        const DecoderObservers& observers, DecoderWorkspace& workspace) const {
  const int64_t tokens = static_cast<int64_t>(step.tokens.size());
  const int64_t sequences = static_cast<int64_t>(step.batch.row_offsets.size()) - 1;
  PLUMBLINE_CHECK(tokens <= workspace.max_tokens());
  const MatrixView<float> hidden = workspace.hidden.Rows(0, tokens);
  const MatrixView<float> normed = workspace.normed.Rows(0, tokens);

  Embed(context, *embedding, step.tokens, hidden);
  RopeTables(context, rope, step.positions, workspace.cos.Rows(0, tokens), workspace.sin.Rows(0, tokens));
  size_t captured = 0;
  for (int64_t i = 0; i < config.layers; ++i) {
    const DecoderLayer& layer = layers[i];
    float* max_logit =
        observers.max_logits == nullptr ? nullptr : observers.max_logits + i * sequences * config.heads;
    RmsNorm(context, hidden, layer.attention_norm.data(), config.norm_eps, normed);
    RETURN_IF_ERROR(layer.attention.Forward(context, config, kv, i, step, max_logit, workspace));
    RmsNorm(context, hidden, layer.mlp_norm.data(), config.norm_eps, normed);
    RETURN_IF_ERROR(layer.mlp.Forward(context, config, tokens, workspace));
    if (captured < observers.layers.size() && observers.layers[captured] == i) {
      Capture(hidden, observers.hidden[captured++]);
    }
  }
  return {};
}

}  // namespace plumbline

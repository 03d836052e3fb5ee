// A decoder: embedding, layers of pre-norm attention and gated feed-forward around a residual stream, final
// norm and vocabulary head. Everything between matmuls is float32.
#pragma once

#include <memory>
#include <vector>

#include "plumbline/nn/gated_mlp.h"
#include "plumbline/nn/lm_head.h"
#include "plumbline/nn/self_attention.h"

namespace plumbline {

struct DecoderLayer {
  std::vector<float> attention_norm, mlp_norm;  // [hidden]
  SelfAttention attention;
  GatedMlp mlp;
};

struct Decoder {
  DecoderConfig config;
  Compute compute = Compute::kBf16;
  RopeFrequencies rope;
  std::shared_ptr<const PackedWeight> embedding;  // [vocab, hidden]
  std::vector<DecoderLayer> layers;
  FinalNorm final_norm;
  LmHead head;  // shares the embedding's weight where tied

  KvLayout Kv(int64_t page_size) const {
    return {.layers = config.layers,
            .kv_heads = config.kv_heads,
            .head_dim = config.head_dim,
            .page_size = page_size,
            .compute = compute};
  }
  int64_t WeightBytes() const;

  // Runs every layer over the step's rows. Afterwards the first T rows of workspace.hidden are the residual
  // stream [T, hidden] before the final norm, and the step's keys and values are in its pages. Ids are in
  // range, T <= workspace.max_tokens() and every page a row needs is there: the caller's checks.
  Status Forward(const KernelContext& context, const KvLayout& kv, const DecoderStep& step,
                 const DecoderObservers& observers, DecoderWorkspace& workspace) const;
};

}  // namespace plumbline

// A decoder: embedding, layers of pre-norm attention and gated feed-forward around a residual stream, final
// norm and vocabulary head. Everything between matmuls is float32. On several ranks each holds its
// DecoderShard.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "plumbline/nn/expert_mlp.h"
#include "plumbline/nn/gated_mlp.h"
#include "plumbline/nn/lm_head.h"
#include "plumbline/nn/self_attention.h"
#include "plumbline/nn/token_embedding.h"

namespace plumbline {

struct DecoderLayer {
  std::vector<float> attention_norm, mlp_norm;  // [hidden]
  SelfAttention attention;
  GatedMlp mlp;       // of a dense layer
  ExpertMlp experts;  // of a sparse one
};

struct Decoder {
  DecoderConfig config;
  Compute compute = Compute::kBf16;
  DecoderShard shard;
  std::vector<std::vector<float>> constants;  // in the order of config.declares
  TokenEmbedding embedding;                   // of the first stage
  std::shared_ptr<const std::vector<DecoderLayer>>
      layers;  // of the rank's stage; replicas in one process share them
  FinalNorm final_norm;
  LmHead head;  // of the last stage; shares the embedding's weight where tied and the first stage is the last

  // Of the rank's layers and KV heads.
  KvLayout Kv(int64_t page_size) const {
    return {.layers = shard.layers.size(),
            .kv_heads = shard.kv_heads.size(),
            .head_dim = config.head_dim,
            .page_size = page_size,
            .compute = WithoutIntegers(compute)};
  }
  // Of DecoderStep::declared, where nobody else brings them.
  std::vector<std::span<const float>> Constants() const { return {constants.begin(), constants.end()}; }
  int64_t WeightBytes(bool with_layers = true) const;
  // For steps of at most `tokens` rows, `all_tokens` over all replicas.
  WorkspaceSizes Workspace(int64_t tokens, int64_t all_tokens) const;

  // Runs the stage's layers over the step's rows. Before: on a stage after the first, workspace.hidden holds
  // what the stage before left there. Afterwards its first T rows are the residual stream [T, hidden], before
  // the final norm, and the step's keys and values are in their pages. Ids are in range, T <=
  // workspace.max_tokens() and every page a row needs is there: the caller's checks.
  Status Forward(const RankContext& rank, const KvLayout& kv, const DecoderStep& step,
                 const DecoderObservers& observers, DecoderWorkspace& workspace) const;
};

}  // namespace plumbline

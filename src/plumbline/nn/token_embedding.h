// The embedding table, its rows cut over all ranks of a stage.
#pragma once

#include <memory>
#include <vector>

#include "plumbline/kernels/gemm/packed_weight.h"
#include "plumbline/nn/rank_context.h"
#include "plumbline/nn/step.h"
#include "plumbline/nn/workspace.h"

namespace plumbline {

struct TokenEmbedding {
  int64_t vocab = 0;
  std::shared_ptr<const PackedWeight> weight;  // [rank.shard.vocab, hidden]; empty where that is

  // hidden [T, hidden] = rows of the step's own tokens. On several ranks each brings the rows it holds, of
  // all replicas' tokens.
  Status Forward(const RankContext& rank, const DecoderStep& step, DecoderWorkspace& workspace,
                 MatrixView<float> hidden) const;
};

}  // namespace plumbline

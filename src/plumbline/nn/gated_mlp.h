// The gated feed-forward: down(act(gate(x)) * up(x)) (Shazeer 2020). Its columns are cut over the
// tensor-parallel ranks.
#pragma once

#include "plumbline/nn/decoder_config.h"
#include "plumbline/nn/linear.h"
#include "plumbline/nn/row_parallel_linear.h"
#include "plumbline/nn/workspace.h"

namespace plumbline {

struct GatedMlp {
  Linear gate_proj, up_proj;  // rows of the rank's columns; without weights where it has none
  RowParallelLinear down_proj;

  // workspace.hidden += down(...) of the first `tokens` rows of workspace.normed.
  Status Forward(const RankContext& rank, const DecoderConfig& config, int64_t tokens,
                 DecoderWorkspace& workspace) const;
};

}  // namespace plumbline

// The sparse feed-forward (Shazeer et al. 2017): a router sends each row to a few of many gated feed-forwards
// and sums what they give back, weighted, in the order of their weights (kernels/experts). A row's result
// depends on the row alone. Every expert's columns are cut over the tensor-parallel ranks like a dense
// feed-forward's, or, with an expert degree, whole experts over the ranks of all replicas
// (expert_exchange.h).
#pragma once

#include <vector>

#include "plumbline/nn/decoder_config.h"
#include "plumbline/nn/linear.h"
#include "plumbline/nn/row_parallel_linear.h"
#include "plumbline/nn/step.h"
#include "plumbline/nn/workspace.h"

namespace plumbline {

struct ExpertMlp {
  struct Expert {
    Linear gate_proj, up_proj;    // rows of the rank's columns; without weights where it has none
    RowParallelLinear down_proj;  // all experts' are cut alike
  };

  Compute compute = Compute::kBf16;  // of the run
  Linear router;                     // [experts, hidden], on every rank
  std::vector<Expert> experts;       // the rank's; empty in a dense layer

  // workspace.hidden += the experts' sum for the step's rows of workspace.normed. With an expert degree every
  // rank calls it in every step that has rows anywhere.
  Status Forward(const RankContext& rank, const DecoderConfig& config, const DecoderStep& step,
                 DecoderWorkspace& workspace) const;

  int64_t WeightBytes() const;

 private:
  Status Exchange(const RankContext& rank, const DecoderConfig& config, const DecoderStep& step,
                  DecoderWorkspace& workspace) const;
  Status Combine(const RankContext& rank, const DecoderConfig& config, const Range& home,
                 DecoderWorkspace& workspace) const;
  Status Route(const RankContext& rank, const DecoderConfig& config, MatrixView<const float> x,
               DecoderWorkspace& workspace) const;
  // scratch.out = what the experts give for the pairs of scratch.groups, whose rows are x's.
  Status Run(const RankContext& rank, const DecoderConfig& config, MatrixView<const float> x,
             DecoderWorkspace& workspace) const;
  Status RunExpert(const RankContext& rank, const DecoderConfig& config, MatrixView<const float> x,
                   int64_t expert, DecoderWorkspace& workspace) const;
};

}  // namespace plumbline

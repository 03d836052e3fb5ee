#include "plumbline/nn/gated_mlp.h"

#include <array>

namespace plumbline {

Status GatedMlp::Forward(const RankContext& rank, const DecoderConfig& config, int64_t tokens,
                         DecoderWorkspace& workspace) const {
  const MatrixView<float> gate = workspace.gate.Rows(0, tokens);
  const MatrixView<float> up = workspace.up.Rows(0, tokens);
  if (gate.cols > 0) {
    RETURN_IF_ERROR(workspace.packed.Pack(rank.kernel, workspace.normed.Rows(0, tokens),
                                          std::array{gate_proj.weight.compute(), up_proj.weight.compute()}));
    Gemm(rank.kernel, workspace.packed, std::array{gate_proj.Job(gate), up_proj.Job(up)});
    GatedActivation(rank.kernel, config.activation, gate, up, gate);
  }
  return down_proj.Accumulate(rank, gate, workspace, workspace.hidden.Rows(0, tokens));
}

}  // namespace plumbline

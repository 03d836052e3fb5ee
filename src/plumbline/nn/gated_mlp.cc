#include "plumbline/nn/gated_mlp.h"

#include <array>

namespace plumbline {

Status GatedMlp::Forward(const KernelContext& context, const DecoderConfig& config, int64_t tokens,
                         DecoderWorkspace& workspace) const {
  const MatrixView<float> gate = workspace.gate.Rows(0, tokens);
  const MatrixView<float> up = workspace.up.Rows(0, tokens);
  RETURN_IF_ERROR(
      workspace.packed.Pack(context, workspace.normed.Rows(0, tokens), gate_proj.weight.compute()));
  Gemm(context, workspace.packed, std::array{gate_proj.Job(gate), up_proj.Job(up)});
  GatedActivation(context, config.activation, gate, up, gate);
  RETURN_IF_ERROR(workspace.packed.Pack(context, gate, down_proj.weight.compute()));
  Gemm(context, workspace.packed,
       std::array{down_proj.Job(workspace.hidden.Rows(0, tokens), /*accumulate=*/true)});
  return {};
}

}  // namespace plumbline

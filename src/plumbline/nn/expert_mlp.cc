#include "plumbline/nn/expert_mlp.h"

#include <algorithm>
#include <array>

#include "plumbline/kernels/experts/experts.h"
#include "plumbline/kernels/for_rows.h"

namespace plumbline {
namespace {

int64_t Bytes(const Linear& linear) {
  return linear.weight.bytes() + static_cast<int64_t>(linear.bias.size() * sizeof(float));
}

MatrixView<int32_t> Ids(ExpertScratch& scratch, const DecoderConfig& config, int64_t rows) {
  return {scratch.ids.data(), rows, config.experts.per_token};
}

}  // namespace

int64_t ExpertMlp::WeightBytes() const {
  int64_t bytes = Bytes(router);
  for (const Expert& expert : experts)
    bytes += Bytes(expert.gate_proj) + Bytes(expert.up_proj) + expert.down_proj.WeightBytes();
  return bytes;
}

Status ExpertMlp::Forward(const RankContext& rank, const DecoderConfig& config, int64_t tokens,
                          DecoderWorkspace& workspace) const {
  ExpertScratch& scratch = workspace.experts;
  const MatrixView<const float> x = workspace.normed.Rows(0, tokens);
  // How many rows an expert gets changes from step to step.
  const int64_t widest = (std::max(config.hidden, config.experts.intermediate) + 1) / 2 * 2;
  RETURN_IF_ERROR(workspace.packed.Reserve(rank.kernel, workspace.max_tokens() * widest, widest,
                                           experts.front().gate_proj.weight.compute()));
  RETURN_IF_ERROR(Route(rank, config, x, workspace));
  scratch.groups.Build(Ids(scratch, config, tokens), config.experts.count);
  RETURN_IF_ERROR(Run(rank, config, x, workspace));
  CombineExperts(rank.kernel, scratch.weights.Rows(0, tokens),
                 MatrixView<const float>(scratch.out.data(), scratch.groups.pairs(), config.hidden),
                 scratch.groups.slots, /*accumulate=*/true, workspace.hidden.Rows(0, tokens));
  return {};
}

Status ExpertMlp::Route(const RankContext& rank, const DecoderConfig& config, MatrixView<const float> x,
                        DecoderWorkspace& workspace) const {
  ExpertScratch& scratch = workspace.experts;
  const MatrixView<float> logits = scratch.logits.Rows(0, x.rows);
  RETURN_IF_ERROR(workspace.packed.Pack(rank.kernel, x, router.weight.compute()));
  Gemm(rank.kernel, workspace.packed, std::array{router.Job(logits)});
  ChooseExperts(rank.kernel, logits, config.experts.normalize, Ids(scratch, config, x.rows),
                scratch.weights.Rows(0, x.rows));
  return {};
}

Status ExpertMlp::Run(const RankContext& rank, const DecoderConfig& config, MatrixView<const float> x,
                      DecoderWorkspace& workspace) const {
  ExpertScratch& scratch = workspace.experts;
  for (int64_t e = 0; e < std::ssize(experts); ++e) {
    if (scratch.groups.size(e) > 0) RETURN_IF_ERROR(RunExpert(rank, config, x, e, workspace));
  }
  if (rank.tensor.size() == 1) return {};
  // An expert's result is rounded before it is weighted, so sums are finished pair by pair.
  const RowParallelLinear& down = experts.front().down_proj;
  const auto floats = static_cast<size_t>(scratch.groups.pairs() * config.hidden);
  return rank.tensor.AllReduceNodes(down.leaves, scratch.nodes.first(down.parts.size() * floats),
                                    scratch.out.first(floats));
}

Status ExpertMlp::RunExpert(const RankContext& rank, const DecoderConfig& config, MatrixView<const float> x,
                            int64_t expert, DecoderWorkspace& workspace) const {
  ExpertScratch& scratch = workspace.experts;
  const Expert& weights = experts[expert];
  const int64_t first = scratch.groups.offsets[expert], count = scratch.groups.size(expert);
  const MatrixView<float> in = scratch.in.Rows(0, count);
  const MatrixView<float> gate = scratch.gate.Rows(0, count), up = scratch.up.Rows(0, count);
  if (gate.cols == 0) return {};
  const int32_t* rows = scratch.groups.rows.data() + first;
  ForRows(rank.kernel.pool, count, count * x.cols, [&](int64_t begin, int64_t number) {
    for (int64_t i = begin; i < begin + number; ++i) std::copy_n(x.Row(rows[i]), x.cols, in.Row(i));
  });
  RETURN_IF_ERROR(workspace.packed.Pack(
      rank.kernel, in, std::array{weights.gate_proj.weight.compute(), weights.up_proj.weight.compute()}));
  Gemm(rank.kernel, workspace.packed, std::array{weights.gate_proj.Job(gate), weights.up_proj.Job(up)});
  GatedActivation(rank.kernel, config.activation, gate, up, gate);
  const bool shared = rank.tensor.size() > 1;
  float* to = (shared ? scratch.nodes : scratch.out).data() + first * config.hidden;
  const int64_t begin = weights.down_proj.parts.front().k_begin;
  for (const RowParallelLinear::Part& part : weights.down_proj.parts) {
    const MatrixView<const float> columns(gate.data + (part.k_begin - begin), count, part.weight.k(),
                                          gate.stride);
    RETURN_IF_ERROR(workspace.packed.Pack(rank.kernel, columns, part.weight.compute()));
    Gemm(rank.kernel, workspace.packed,
         std::array{GemmJob{.weight = &part.weight, .y = MatrixView<float>(to, count, config.hidden)}});
    to += scratch.groups.pairs() * config.hidden;
  }
  return {};
}

}  // namespace plumbline

#include "plumbline/nn/expert_mlp.h"

#include <algorithm>
#include <array>

#include "plumbline/kernels/experts/experts.h"
#include "plumbline/kernels/for_rows.h"

namespace plumbline {
namespace {

// Whether several ranks hold columns of each expert.
bool Shared(const RankContext& rank) { return rank.tensor.size() > 1 && rank.shard.degrees.ep == 1; }

MatrixView<int32_t> Ids(ExpertScratch& scratch, const DecoderConfig& config, int64_t rows) {
  return {scratch.ids.data(), rows, config.experts.per_token};
}

}  // namespace

int64_t ExpertMlp::WeightBytes() const {
  int64_t bytes = router.WeightBytes();
  for (const Expert& expert : experts)
    bytes += expert.gate_proj.WeightBytes() + expert.up_proj.WeightBytes() + expert.down_proj.WeightBytes();
  return bytes;
}

Status ExpertMlp::Forward(const RankContext& rank, const DecoderConfig& config, const DecoderStep& step,
                          DecoderWorkspace& workspace) const {
  ExpertScratch& scratch = workspace.experts;
  // How many rows an expert gets changes from step to step.
  const int64_t widest = (std::max(config.hidden, config.experts.intermediate) + 1) / 2 * 2;
  const int64_t rows = std::max(workspace.max_tokens(), scratch.in.rows);
  RETURN_IF_ERROR(workspace.packed.Reserve(rank.kernel, rows * widest, widest, compute));
  if (rank.shard.degrees.ep > 1) return Exchange(rank, config, step, workspace);

  const MatrixView<const float> x = workspace.normed.Rows(0, step.rows());
  RETURN_IF_ERROR(Route(rank, config, x, workspace));
  const int64_t choices = config.experts.per_token;
  scratch.groups.Build(std::span(scratch.ids).first(x.rows * choices), config.experts.count,
                       [&](int64_t pair) { return pair / choices; });
  RETURN_IF_ERROR(Run(rank, config, x, workspace));
  CombineExperts(rank.kernel, scratch.weights.Rows(0, x.rows),
                 MatrixView<const float>(scratch.out.data(), scratch.groups.pairs(), config.hidden),
                 scratch.groups.slots, /*accumulate=*/true, workspace.hidden.Rows(0, x.rows));
  return {};
}

Status ExpertMlp::Exchange(const RankContext& rank, const DecoderConfig& config, const DecoderStep& step,
                           DecoderWorkspace& workspace) const {
  ExpertScratch& scratch = workspace.experts;
  ExpertExchange& exchange = scratch.exchange;
  const Range home = exchange.Begin(rank, step.replica_rows);
  const MatrixView<const float> x = workspace.normed.Rows(home.begin, home.size());
  if (x.rows > 0) RETURN_IF_ERROR(Route(rank, config, x, workspace));
  RETURN_IF_ERROR(exchange.Plan(rank, Ids(scratch, config, x.rows)));
  RETURN_IF_ERROR(exchange.Dispatch(rank, x, compute, scratch.send, scratch.raw, scratch.received));
  scratch.groups.Build(exchange.pair_experts(), rank.shard.experts.size(),
                       [rows = exchange.pair_rows()](int64_t pair) { return rows[pair]; });
  const MatrixView<const float> received(scratch.received.data(), exchange.received_rows(), config.hidden);
  RETURN_IF_ERROR(Run(rank, config, received, workspace));
  RETURN_IF_ERROR(exchange.Return(rank, {scratch.out.data(), scratch.groups.pairs(), config.hidden},
                                  scratch.groups, scratch.give, scratch.returned));
  return Combine(rank, config, home, workspace);
}

// The sums of this rank's home rows, then those of the other tensor-parallel ranks'.
Status ExpertMlp::Combine(const RankContext& rank, const DecoderConfig& config, const Range& home,
                          DecoderWorkspace& workspace) const {
  ExpertScratch& scratch = workspace.experts;
  const std::span<const int32_t> slots = scratch.exchange.slots();
  const MatrixView<const float> returned(scratch.returned.data(), std::ssize(slots), config.hidden);
  const MatrixView<const float> weights = scratch.weights.Rows(0, home.size());
  const int tp = rank.tensor.size();
  if (tp == 1) {
    CombineExperts(rank.kernel, weights, returned, slots, /*accumulate=*/true,
                   workspace.hidden.Rows(0, home.size()));
    return {};
  }
  const auto floats = static_cast<size_t>(home.size() * config.hidden);
  CombineExperts(rank.kernel, weights, returned, slots, /*accumulate=*/false,
                 {scratch.combined.data(), home.size(), config.hidden});
  std::array<int64_t, kMaxRanks> counts;
  int64_t rows = 0;
  for (int r = 0; r < tp; ++r) {
    const int64_t part = scratch.exchange.home_rows(rank.shard.at.replica * tp + r);
    counts[r] = part * config.hidden;
    rows += part;
  }
  RETURN_IF_ERROR(AllGatherFloats(rank.tensor, scratch.combined.first(floats), std::span(counts).first(tp),
                                  scratch.gathered.first(static_cast<size_t>(rows * config.hidden))));
  ForRows(rank.kernel.pool, rows, rows * config.hidden, [&](int64_t begin, int64_t count) {
    for (int64_t row = begin; row < begin + count; ++row) {
      const float* add = scratch.gathered.data() + row * config.hidden;
      float* out = workspace.hidden.Row(row);
      for (int64_t i = 0; i < config.hidden; ++i) out[i] += add[i];
    }
  });
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
  if (!Shared(rank)) return {};
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
  float* to = (Shared(rank) ? scratch.nodes : scratch.out).data() + first * config.hidden;
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

#include "plumbline/nn/row_parallel_linear.h"

#include <algorithm>
#include <array>
#include <utility>

namespace plumbline {
namespace {

// Dense [rows, cols].
void CopyDense(MatrixView<const float> x, float* out) {
  for (int64_t row = 0; row < x.rows; ++row) std::copy_n(x.Row(row), x.cols, out + row * x.cols);
}

MatrixView<const float> Columns(MatrixView<const float> x, int64_t begin, int64_t count) {
  return {x.data + begin, x.rows, count, x.stride};
}

}  // namespace

RowParallelLinear RowParallelLinear::Cut(int64_t k, int64_t leaf, std::vector<Range> inputs) {
  RowParallelLinear linear;
  linear.leaf = leaf;
  linear.cuts = RowParallelCuts(k, leaf, inputs);
  linear.inputs = std::move(inputs);
  std::vector<int64_t> offsets = {0};
  for (const Range& cut : linear.cuts) offsets.push_back((cut.end + leaf - 1) / leaf);
  linear.leaves = LeafSplit(std::move(offsets));
  return linear;
}

std::vector<Range> RowParallelLinear::PartsOf(int tensor_rank) const {
  std::vector<Range> columns;
  for (const DyadicNode& node : leaves.nodes(tensor_rank))
    columns.push_back({node.begin * leaf, std::min(cuts.back().end, node.end * leaf)});
  return columns;
}

int64_t RowParallelLinear::WeightBytes() const {
  int64_t bytes = static_cast<int64_t>(bias.size() * sizeof(float));
  for (const Part& part : parts) bytes += part.weight.bytes();
  return bytes;
}

Status RowParallelLinear::Accumulate(const RankContext& rank, MatrixView<const float> x,
                                     DecoderWorkspace& workspace, MatrixView<float> y) const {
  if (rank.tensor.size() == 1) {
    const Part& whole = parts.front();
    RETURN_IF_ERROR(workspace.packed.Pack(rank.kernel, x, whole.weight.compute()));
    Gemm(rank.kernel, workspace.packed,
         std::array{GemmJob{.weight = &whole.weight,
                            .y = y,
                            .bias = bias.empty() ? nullptr : bias.data(),
                            .accumulate = true}});
    return {};
  }
  if (!Exchanges()) return AddSum(rank, x, inputs[rank.tensor.rank()].begin, workspace, y);

  // Every rank's columns, one dense block [tokens, its columns] after the other, then as rows.
  const int64_t tokens = x.rows, k = inputs.back().end;
  const MatrixView<float> rows(workspace.exchanged.data(), tokens, k);
  float* mine = workspace.exchange_send.data();
  float* blocks = workspace.exchange_received.data();
  CopyDense(x, mine);
  std::array<int64_t, kMaxRanks> floats;
  for (size_t r = 0; r < inputs.size(); ++r) floats[r] = tokens * inputs[r].size();
  RETURN_IF_ERROR(AllGatherFloats(rank.tensor, {mine, static_cast<size_t>(x.rows * x.cols)},
                                  std::span(floats).first(inputs.size()),
                                  {blocks, static_cast<size_t>(tokens * k)}));
  for (const Range& columns : inputs) {
    for (int64_t t = 0; t < tokens; ++t)
      std::copy_n(blocks + t * columns.size(), columns.size(), rows.Row(t) + columns.begin);
    blocks += tokens * columns.size();
  }
  const Range& own = cuts[rank.tensor.rank()];
  return AddSum(rank, Columns(rows, own.begin, own.size()), own.begin, workspace, y);
}

Status RowParallelLinear::AddSum(const RankContext& rank, MatrixView<const float> x, int64_t k_begin,
                                 DecoderWorkspace& workspace, MatrixView<float> y) const {
  const int64_t floats = y.rows * y.cols;
  float* nodes = workspace.nodes.data();
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    RETURN_IF_ERROR(workspace.packed.Pack(rank.kernel, Columns(x, part.k_begin - k_begin, part.weight.k()),
                                          part.weight.compute()));
    Gemm(rank.kernel, workspace.packed,
         std::array{
             GemmJob{.weight = &part.weight, .y = MatrixView<float>(nodes + i * floats, y.rows, y.cols)}});
  }
  const std::span<float> sum(workspace.sum.data(), static_cast<size_t>(floats));
  RETURN_IF_ERROR(rank.tensor.AllReduceNodes(
      leaves, std::span<const float>(nodes, parts.size() * static_cast<size_t>(floats)), sum));
  rank.kernel.pool.ParallelFor(y.rows, [&](int64_t row, int) {
    const float* add = sum.data() + row * y.cols;
    float* out = y.Row(row);
    if (bias.empty()) {
      for (int64_t i = 0; i < y.cols; ++i) out[i] += add[i];
    } else {
      for (int64_t i = 0; i < y.cols; ++i) out[i] += add[i] + bias[i];
    }
  });
  return {};
}

}  // namespace plumbline

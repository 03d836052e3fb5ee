// A linear layer whose k is cut over the tensor-parallel ranks: each multiplies its columns, and the sums
// meet as nodes of the dyadic tree over the weight's leaves (numerics contract, section 2), so that the bits
// are those of one rank.
#pragma once

#include <vector>

#include "plumbline/base/dyadic.h"
#include "plumbline/kernels/gemm/gemm.h"
#include "plumbline/nn/leaf.h"
#include "plumbline/nn/rank_context.h"
#include "plumbline/nn/workspace.h"

namespace plumbline {

struct RowParallelLinear {
  struct Part {
    int64_t k_begin = 0;  // of the whole weight
    PackedWeight weight;  // [out_features, the columns of one node]
  };

  int64_t leaf = kMaxLeaf;
  LeafSplit leaves;           // which rank has which leaves
  std::vector<Range> inputs;  // the columns that each rank brings
  std::vector<Range> cuts;    // the columns that each rank multiplies; `inputs`, or all are exchanged first
  std::vector<Part> parts;    // this rank's nodes; none where it holds no leaf
  std::vector<float> bias;    // [out_features] or empty

  // How a weight [out_features, k] with this leaf is cut, where rank r brings the columns inputs[r]; no parts
  // yet.
  static RowParallelLinear Cut(int64_t k, int64_t leaf, std::vector<Range> inputs);
  // The columns of each part that this rank holds.
  std::vector<Range> PartsOf(int tensor_rank) const;

  bool Exchanges() const { return inputs != cuts; }
  int64_t WeightBytes() const;

  // y += x W^T + b on every rank of rank.tensor. x [tokens, this rank's input columns].
  Status Accumulate(const RankContext& rank, MatrixView<const float> x, DecoderWorkspace& workspace,
                    MatrixView<float> y) const;

 private:
  Status AddSum(const RankContext& rank, MatrixView<const float> x, int64_t k_begin,
                DecoderWorkspace& workspace, MatrixView<float> y) const;
};

}  // namespace plumbline

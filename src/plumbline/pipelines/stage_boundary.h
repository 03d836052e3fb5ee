// What one stage of the pipeline hands to the next: a tree that the one returns (process_outputs) and the
// other takes as it is (DecoderInputs::stage_boundary).
//
//   hidden            f32 [stage_rows, hidden]   the residual stream of the replica's rows
//   captured/layerL   f32 [stage_rows, hidden]   each captured layer so far
//   max_logits        f32 [layers so far, stage_sequences, the rank's heads]; of no sequence where not wanted
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "plumbline/comm/communicator.h"
#include "plumbline/nn/decoder_config.h"
#include "plumbline/nn/shard.h"
#include "plumbline/pipelines/contract/input_tensor.h"
#include "plumbline/pipelines/contract/input_tree.h"
#include "plumbline/tensor/grow_buffer.h"
#include "plumbline/tensor/matrix.h"

namespace plumbline {

// Before layer `layer`, of a rank with `heads` heads. `captured`: the layers of all stages, ascending.
struct StageBoundaryShape {
  int64_t layer = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  std::vector<int32_t> captured;  // of the layers so far
};
StageBoundaryShape StageBoundaryAt(const DecoderConfig& config, const DecoderShard& shard,
                                   std::span<const int32_t> captured, int64_t layer);

// Rank-local leaves on `device`.
InputTree<InputSpec> StageBoundaryTypes(const StageBoundaryShape& shape, DeviceRef device);

// One such tree and its memory, which grows to the largest step's and stays.
class StageBoundary {
 public:
  StageBoundary() = default;
  // `prefix`: before each leaf's path.
  StageBoundary(StageBoundaryShape shape, DeviceRef device, std::string_view prefix);

  // Of a step; the contents are lost.
  Status SetSizes(int64_t rows, int64_t maxima_sequences);

  const InputTree<InputTensor>& tree() const { return tree_; }
  MatrixView<float> hidden() const { return Rows(0); }
  int64_t captured() const { return std::ssize(shape_.captured); }
  MatrixView<float> captured(int64_t i) const { return Rows(1 + i); }
  std::span<float> max_logits() const { return tree_.leaves.back().value.As<float>(); }

 private:
  MatrixView<float> Rows(int64_t leaf) const;

  StageBoundaryShape shape_;
  InputTree<InputTensor> tree_;
  GrowBuffer memory_;
};

// Both ends know the sizes; leaves without elements do not travel.
Status SendTree(Communicator& group, const InputTree<InputTensor>& tree, int to, int tag);
Status ReceiveTree(Communicator& group, const InputTree<InputTensor>& tree, int from, int tag);

}  // namespace plumbline

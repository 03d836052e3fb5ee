// What a step of the last stage gives, by name, as process_outputs takes it (contract/model_outputs.h). A
// step has rows of three kinds (sequence.h); each kind's come replica after replica.
//
//   next_token_logits                    f32 [sampled rows, vocab]
//   hidden_states/KIND/replicaR          f32 [rows of that kind and replica, hidden], or
//   hidden_states/KIND/replicaR/layerL   one a captured layer (kSelectedLayers)
//   scores/logprobs, scores/ranks        f32, i64 [scored rows]; NaN and 0 where no token follows
//   scores/top_ids, scores/top_values    i32, f32 [scored rows, top_k]
//   max_logits                           f32 [layers, sequences, heads], of no sequence where not wanted
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plumbline/nn/decoder_config.h"
#include "plumbline/nn/distributed_logits_postprocess.h"
#include "plumbline/nn/row_scores.h"
#include "plumbline/pipelines/contract/model_outputs.h"
#include "plumbline/pipelines/sequence.h"

namespace plumbline {

// How many hidden states there are, and which.
struct HiddenStatesShape {
  ReturnHiddenStates mode = ReturnHiddenStates::kNone;
  std::vector<int32_t> layers;  // captured, kSelectedLayers
  int replicas = 1;

  int64_t Tensors() const { return mode == ReturnHiddenStates::kSelectedLayers ? std::ssize(layers) : 1; }
  // Of the first tensor of a kind and replica, in ModelOutputs::hidden_states.
  int64_t First(RowKind kind, int replica) const {
    return (static_cast<int64_t>(kind) * replicas + replica) * Tensors();
  }
};

// What the decoder's registration says of its outputs.
OutputNames StepOutputNames(const HiddenStatesShape& hidden);

// The tree, filled anew each step.
class StepOutputs {
 public:
  StepOutputs() = default;
  StepOutputs(const DecoderConfig& config, const HiddenStatesShape& hidden);

  void Clear();  // no row of any kind
  void SetLogits(MatrixView<const float> logits);
  void SetScores(const RowScores& scores);
  void SetHiddenStates(RowKind kind, std::span<const MatrixView<const float>> states);  // replica-major
  void SetMaxLogits(std::span<const float> max_logits, int64_t sequences);

  const InputTree<InputTensor>& tree() const { return tree_; }

 private:
  void Set(size_t leaf, DType dtype, const InputShape& shape, const void* data);

  HiddenStatesShape hidden_;
  int64_t vocab_ = 0, width_ = 0, layers_ = 0, heads_ = 0;
  size_t first_hidden_ = 0, first_score_ = 0;  // leaves
  std::vector<int32_t> top_ids_;
  std::vector<float> top_values_;
  InputTree<InputTensor> tree_;
};

// The scores among a step's outputs.
struct ScoredRows {
  std::span<const float> logprobs;
  std::span<const int64_t> ranks;
  std::span<const int32_t> top_ids;
  std::span<const float> top_values;
  int64_t top_k = 0;
};
ScoredRows ScoresOf(const ModelOutputs& outputs);
std::span<const float> MaxLogitsOf(const ModelOutputs& outputs);
// f32 [rows, columns] as a matrix.
MatrixView<const float> MatrixOf(const InputTensor& tensor);

}  // namespace plumbline

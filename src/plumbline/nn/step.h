// One step of a decoder: ragged rows of one or many sequences, and what to observe on the way.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "plumbline/kernels/attention/attention.h"
#include "plumbline/nn/decoder_declaration.h"
#include "plumbline/nn/shard.h"
#include "plumbline/tensor/matrix.h"

namespace plumbline {

struct DecoderStep {
  // Ids of all replicas' rows, in replica order, each in [0, vocab), and which of them are this replica's
  // [T].
  std::span<const int64_t> tokens;
  Range own;
  std::span<const int32_t> positions;  // [T] absolute positions, as `batch` implies them
  // This replica's sequences; a null page lies on another context-parallel rank. Rows behind its last offset
  // pad the step: they attend to nothing, and their keys and values are not kept.
  PagedBatch batch;
  DeclaredViews declared;  // of the decoder's configuration; its constants are there at least

  // [dp] rows of each replica, this one's among them; needed where experts are cut over replicas.
  std::span<const int64_t> replica_rows;

  int64_t rows() const { return own.size(); }
};

// Optional observations; an unset one costs nothing and changes no bit of anything else.
struct DecoderObservers {
  float* max_logits =
      nullptr;            // [the stage's layers, sequences, the rank's heads], accumulated into what is there
  int64_t sequences = 0;  // of max_logits: the batch's, or more
  // q and k of every layer of the stage as its attention takes them, after their norms and rotary, before
  // they are rounded to the compute type: one [T, the rank's heads * head_dim] and one [T, its KV heads *
  // head_dim] a layer. Empty: not wanted.
  std::span<const MatrixView<float>> queries, keys;
  std::span<const int32_t> layers;  // layers whose output to capture, ascending, of all stages
  std::span<MatrixView<float>>
      hidden;  // one [T, hidden] per captured layer: the residual stream after that
               // layer, before the final norm; a stage writes those of its own layers
};

// The part of DecoderObservers that belongs to one layer's attention; null members are not wanted.
struct AttentionObserver {
  float* max_logit = nullptr;  // [B, the rank's heads]
  const MatrixView<float>* queries = nullptr;
  const MatrixView<float>* keys = nullptr;
};

inline void CopyRows(MatrixView<const float> from, MatrixView<float> to) {
  for (int64_t row = 0; row < from.rows; ++row) std::copy_n(from.Row(row), from.cols, to.Row(row));
}

}  // namespace plumbline

// One step of a decoder: ragged rows of one or many sequences, and what to observe on the way.
#pragma once

#include <cstdint>
#include <span>

#include "plumbline/kernels/attention/attention.h"
#include "plumbline/tensor/matrix.h"

namespace plumbline {

struct DecoderStep {
  std::span<const int32_t> tokens;     // [T] ids, each in [0, vocab)
  std::span<const int32_t> positions;  // [T] absolute positions, as `batch` implies them
  PagedBatch batch;
};

// Optional observations; an unset one costs nothing and changes no bit of anything else.
struct DecoderObservers {
  float* max_logits = nullptr;          // [layers, B, heads], accumulated into what is there
  std::span<const int32_t> layers;      // layers whose output to capture, ascending
  std::span<MatrixView<float>> hidden;  // one [T, hidden] per captured layer: the residual stream after that
                                        // layer, before the final norm
};

}  // namespace plumbline

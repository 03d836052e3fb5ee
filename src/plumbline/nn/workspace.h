// The activations of one step, allocated once for the largest step and reused: a step allocates nothing.
#pragma once

#include "plumbline/base/status.h"
#include "plumbline/kernels/gemm/gemm.h"
#include "plumbline/nn/decoder_config.h"
#include "plumbline/tensor/buffer.h"
#include "plumbline/tensor/matrix.h"

namespace plumbline {

// Float32 matrices of at most `max_tokens` rows; a step uses the first `tokens` rows of each.
class DecoderWorkspace {
 public:
  static Result<DecoderWorkspace> Allocate(const DecoderConfig& config, int64_t max_tokens);
  static int64_t Bytes(const DecoderConfig& config, int64_t max_tokens);

  int64_t max_tokens() const { return max_tokens_; }

  MatrixView<float> hidden;    // [tokens, hidden] the residual stream
  MatrixView<float> normed;    // [tokens, hidden]
  MatrixView<float> q;         // [tokens, heads * head_dim]
  MatrixView<float> k, v;      // [tokens, kv_heads * head_dim]
  MatrixView<float> context;   // [tokens, heads * head_dim] attention's output
  MatrixView<float> gate, up;  // [tokens, intermediate]
  MatrixView<float> cos, sin;  // [tokens, head_dim / 2]
  PackedActivations packed;

 private:
  int64_t max_tokens_ = 0;
  Buffer buffer_;
};

}  // namespace plumbline

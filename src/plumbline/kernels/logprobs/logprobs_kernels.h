// The inner loops of log-probabilities, one table for each instruction set. All of them need ScopedFloatEnv.
#pragma once

#include <cstdint>

#include "plumbline/kernels/logprobs/top_k.h"

namespace plumbline {

struct LogProbKernels {
  // One tile x [n], 1 <= n: *max = max x (NaN propagates); *sum = sum exp(x - max) over 16 interleaved lanes
  // and their tree, 0 where the maximum is -inf.
  void (*tile_stats)(const float* x, int64_t n, float* max, float* sum);

  // tile_max, tile_sum [tiles, rows], tiles >= 1: merges each row's tiles by the dyadic tree and writes
  // norm [rows] = -(m + log s).
  void (*norms)(const float* tile_max, const float* tile_sum, int64_t tiles, int64_t rows, float* norm);

  // #{i < n : x[i] > chosen} + #{i < below : x[i] == chosen}, below <= n.
  int64_t (*count_before)(const float* x, int64_t n, float chosen, int64_t below);

  // Offers (x[i], first_id + i), 0 <= i < n, to heap [k], k >= 1. NaN never enters.
  void (*offer)(const float* x, int64_t n, int32_t first_id, TopEntry* heap, int64_t k);
};

namespace isa_avx2 {
extern const LogProbKernels kLogProbKernels;
}
namespace isa_avx512 {
extern const LogProbKernels kLogProbKernels;
}
namespace isa_avx512_bf16 {
extern const LogProbKernels kLogProbKernels;
}

}  // namespace plumbline

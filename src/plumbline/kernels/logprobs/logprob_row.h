// One output position of the materialised form: which row and token it is, and the numbers of that row.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "plumbline/base/isa.h"
#include "plumbline/base/status.h"
#include "plumbline/kernels/logprobs/logprobs.h"
#include "plumbline/kernels/logprobs/logprobs_kernels.h"

namespace plumbline {

const LogProbKernels& LogProbKernelsFor(Isa isa);

struct OutputPosition {
  int64_t sequence;
  int64_t logits_row;
  uint32_t token;  // whose log-probability the position reports
};

// `output` in [0, lp_output_offsets.back()).
OutputPosition PositionOf(const LogProbInputs& in, int64_t output);

// logits [rows, cols]: at least one column, every id an int32.
Status CheckLogits(std::string_view name, const MatrixView<const float>& logits);

// offsets [sequences + 1] start at 0, never fall, and end within `limit` (`what` says of what).
Status CheckOffsets(std::string_view name, std::span<const uint32_t> offsets, size_t sequences, int64_t limit,
                    std::string_view what);

// The offsets and token ids of `in` against the sizes of its arrays and `outputs` output rows.
Status CheckRaggedInputs(const LogProbInputs& in, int64_t outputs);

// x + norm; NaN is the one quiet NaN, whatever its origin.
inline float LogProb(float x, float norm) {
  const float y = x + norm;
  return y == y ? y : std::numeric_limits<float>::quiet_NaN();
}

// norm = -(m + log s) of row x [vocab], and in top [k] the best k logits above -inf, best first; then (-inf,
// kEmptyFiniteId). Needs ScopedFloatEnv.
float RowNormAndTop(const LogProbKernels& kernels, std::span<const float> x, std::span<TopEntry> top);

}  // namespace plumbline

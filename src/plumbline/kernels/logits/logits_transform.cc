#include "plumbline/kernels/logits/logits_transform.h"

#include <algorithm>
#include <limits>

#include "plumbline/base/check.h"
#include "plumbline/base/float_env.h"
#include "plumbline/kernels/logits/logits_transform_kernels.h"

namespace plumbline {
namespace {

const LogitsTransformKernels& KernelsFor(Isa isa) {
  return ForIsa(isa, isa_avx2::kLogitsTransformKernels, isa_avx512::kLogitsTransformKernels,
                isa_avx512_bf16::kLogitsTransformKernels);
}

}  // namespace

void ScaleAndSoftcap(Isa isa, MatrixView<float> logits, float logits_scaling, std::optional<float> softcap,
                     int64_t col_offset, int64_t unpadded_vocab) {
  PLUMBLINE_CHECK(logits_scaling != 0.0f && softcap != 0.0f);
  const ScopedFloatEnv float_env;
  const LogitsTransformKernels& kernels = KernelsFor(isa);
  const int64_t kept = std::clamp<int64_t>(unpadded_vocab - col_offset, 0, logits.cols);
  for (int64_t row = 0; row < logits.rows; ++row) {
    float* x = logits.Row(row);
    if (logits_scaling != 1.0f) kernels.divide(x, kept, logits_scaling);
    if (softcap) kernels.softcap(x, kept, *softcap);
    std::fill(x + kept, x + logits.cols, -std::numeric_limits<float>::infinity());
  }
}

}  // namespace plumbline

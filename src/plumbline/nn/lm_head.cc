#include "plumbline/nn/lm_head.h"

#include <algorithm>
#include <array>
#include <limits>

#include "plumbline/base/check.h"
#include "plumbline/kernels/logits/logits_transform.h"
#include "plumbline/kernels/logprobs/logprobs.h"
#include "plumbline/kernels/norm/norm.h"
#include "plumbline/tensor/buffer.h"

namespace plumbline {

void FinalNorm::Apply(const KernelContext& context, MatrixView<const float> x, MatrixView<float> y) const {
  RmsNorm(context, x, weight.data(), eps, y);
}

void LogitsTransform::Apply(Isa isa, MatrixView<float> logits, int64_t first_id) const {
  const int64_t unpadded = vocab > 0 ? vocab : std::numeric_limits<int64_t>::max();
  ScaleAndSoftcap(isa, logits, scaling, softcap, first_id, unpadded);
}

void LmHead::Project(const KernelContext& context, const PackedActivations& x,
                     const LogitsTransform& transform, MatrixView<float> logits) const {
  Gemm(context, x, std::array{GemmJob{.weight = weight.get(), .y = logits}});
  context.pool.ParallelFor(logits.rows,
                           [&](int64_t row, int) { transform.Apply(context.isa, logits.Rows(row, 1), 0); });
}

Status LmHead::ProjectTiles(const KernelContext& context, const PackedActivations& x, int64_t row_begin,
                            int64_t row_end, const LogitsTransform& transform, const LogitsTileFn& fn) const {
  const int64_t rows = row_end - row_begin;
  const int64_t tile_floats = rows * kVocabTile;
  ASSIGN_OR_RETURN(Buffer tiles, Buffer::Allocate(context.pool.threads() * tile_floats *
                                                  static_cast<int64_t>(sizeof(float))));
  float* tile_data = static_cast<float*>(tiles.data());
  std::vector<GemmScratch> scratch(context.pool.threads());
  context.pool.ParallelFor((vocab() + kVocabTile - 1) / kVocabTile, [&](int64_t tile, int thread) {
    const int64_t begin = tile * kVocabTile;
    const int64_t end = std::min(vocab(), begin + kVocabTile);
    const MatrixView<float> logits(tile_data + thread * tile_floats, rows, end - begin, kVocabTile);
    GemmBlock(context.isa, x, row_begin, row_end, *weight, begin, end, logits, scratch[thread]);
    transform.Apply(context.isa, logits, begin);
    fn(tile, logits, thread);
  });
  return {};
}

Status LmHead::ProjectChosen(const KernelContext& context, const PackedActivations& x, int64_t row_begin,
                             int64_t row_end, const LogitsTransform& transform, std::span<const int32_t> ids,
                             std::span<float> out) const {
  PLUMBLINE_CHECK(static_cast<int64_t>(ids.size()) == row_end - row_begin && out.size() == ids.size());
  std::vector<GemmScratch> scratch(context.pool.threads());
  context.pool.ParallelFor(row_end - row_begin, [&](int64_t i, int thread) {
    alignas(64) float panel[kPanel];
    const int64_t begin = ids[i] / kPanel * kPanel;
    const int64_t end = std::min(vocab(), begin + kPanel);
    const MatrixView<float> logits(panel, 1, end - begin);
    const int64_t row = row_begin + i;
    GemmBlock(context.isa, x, row, row + 1, *weight, begin, end, logits, scratch[thread]);
    transform.Apply(context.isa, logits, begin);
    out[i] = panel[ids[i] - begin];
  });
  return {};
}

}  // namespace plumbline

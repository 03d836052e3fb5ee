#include "plumbline/nn/lm_head.h"

#include <algorithm>
#include <array>
#include <limits>

#include "plumbline/base/check.h"
#include "plumbline/kernels/logits/logits_transform.h"
#include "plumbline/kernels/logprobs/logprobs.h"
#include "plumbline/kernels/norm/norm.h"

namespace plumbline {

void FinalNorm::Apply(const KernelContext& context, MatrixView<const float> x, MatrixView<float> y) const {
  RmsNorm(context, x, weight.data(), eps, y);
}

void LogitsTransform::Apply(Isa isa, MatrixView<float> logits, int64_t first_id) const {
  const int64_t unpadded = vocab > 0 ? vocab : std::numeric_limits<int64_t>::max();
  ScaleAndSoftcap(isa, logits, scaling, softcap, first_id, unpadded);
}

Status LmHeadScratch::Reserve(int threads, int64_t rows) {
  const int64_t bytes = threads * rows * kVocabTile * static_cast<int64_t>(sizeof(float));
  if (tiles.bytes() < bytes) {
    ASSIGN_OR_RETURN(tiles, Buffer::Allocate(bytes));
  }
  if (static_cast<int>(panels.size()) < threads) panels.resize(threads);
  return {};
}

void LmHead::Project(const KernelContext& context, const PackedActivations& x,
                     const LogitsTransform& transform, MatrixView<float> logits) const {
  if (ids.size() == 0) return;
  Gemm(context, x, std::array{GemmJob{.weight = weight.get(), .y = logits}});
  context.pool.ParallelFor(
      logits.rows, [&](int64_t row, int) { transform.Apply(context.isa, logits.Rows(row, 1), ids.begin); });
}

Status LmHead::ProjectTiles(const KernelContext& context, const PackedActivations& x, int64_t row_begin,
                            int64_t row_end, const LogitsTransform& transform, LmHeadScratch& scratch,
                            const LogitsTileFn& fn) const {
  const int64_t rows = row_end - row_begin;
  RETURN_IF_ERROR(scratch.Reserve(context.pool.threads(), rows));
  float* tile_data = static_cast<float*>(scratch.tiles.data());
  context.pool.ParallelFor((ids.size() + kVocabTile - 1) / kVocabTile, [&](int64_t tile, int thread) {
    const int64_t begin = tile * kVocabTile;
    const int64_t end = std::min(ids.size(), begin + kVocabTile);
    const MatrixView<float> logits(tile_data + thread * rows * kVocabTile, rows, end - begin, kVocabTile);
    GemmBlock(context.isa, x, row_begin, row_end, *weight, begin, end, logits, scratch.panels[thread]);
    transform.Apply(context.isa, logits, ids.begin + begin);
    fn(ids.begin / kVocabTile + tile, logits, thread);
  });
  return {};
}

Status LmHead::ProjectChosen(const KernelContext& context, const PackedActivations& x, int64_t row_begin,
                             int64_t row_end, const LogitsTransform& transform,
                             std::span<const int32_t> chosen, LmHeadScratch& scratch,
                             std::span<float> out) const {
  PLUMBLINE_CHECK(static_cast<int64_t>(chosen.size()) == row_end - row_begin && out.size() == chosen.size());
  RETURN_IF_ERROR(scratch.Reserve(context.pool.threads(), 0));
  context.pool.ParallelFor(row_end - row_begin, [&](int64_t i, int thread) {
    out[i] = -std::numeric_limits<float>::infinity();
    if (chosen[i] < ids.begin || chosen[i] >= ids.end) return;
    alignas(64) float panel[kPanel];
    const int64_t id = chosen[i] - ids.begin;
    const int64_t begin = id / kPanel * kPanel;
    const int64_t end = std::min(ids.size(), begin + kPanel);
    const MatrixView<float> logits(panel, 1, end - begin);
    const int64_t row = row_begin + i;
    GemmBlock(context.isa, x, row, row + 1, *weight, begin, end, logits, scratch.panels[thread]);
    transform.Apply(context.isa, logits, ids.begin + begin);
    out[i] = panel[id - begin];
  });
  return {};
}

}  // namespace plumbline

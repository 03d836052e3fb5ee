// The final norm and the projection to the vocabulary, whose ids are cut over all ranks of the last stage.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plumbline/kernels/gemm/gemm.h"
#include "plumbline/nn/shard.h"

namespace plumbline {

struct FinalNorm {
  std::vector<float> weight;  // [hidden]
  float eps = 1e-5f;

  void Apply(const KernelContext& context, MatrixView<const float> x, MatrixView<float> y) const;
};

// What happens to a logit after the projection, in this order: divided by `scaling` (when not 1), then
// tanh(x / softcap) * softcap, then -inf for ids >= vocab (a padded tail; re-applied after the soft-cap).
struct LogitsTransform {
  float scaling = 1.0f;
  std::optional<float> softcap;
  int64_t vocab = 0;  // ids that exist; 0: all columns of the head

  void Apply(Isa isa, MatrixView<float> logits, int64_t first_id) const;
};

// Logits of some rows, one vocabulary tile (kVocabTile ids) at a time. `logits` [rows, tile width] is valid
// during the call. Called from every thread of the pool, each tile once; `thread` < pool.threads().
using LogitsTileFn = std::function<void(int64_t tile, MatrixView<const float> logits, int thread)>;

// Memory of the threads that project; grows to the largest size it has held.
struct LmHeadScratch {
  Buffer tiles;  // one a thread
  std::vector<GemmScratch> panels;

  Status Reserve(int threads, int64_t rows);
};

struct LmHead {
  int64_t vocab = 0;  // of all ranks
  int64_t hidden = 0;
  Compute compute = Compute::kBf16;            // of the weight
  Range ids;                                   // of this rank: whole tiles, perhaps none
  std::shared_ptr<const PackedWeight> weight;  // [ids, hidden]; unset where there are none

  // logits [M, ids] of x [M, hidden] (already normed): this rank's columns.
  void Project(const KernelContext& context, const PackedActivations& x, const LogitsTransform& transform,
               MatrixView<float> logits) const;

  // The same logits, bit for bit, tile by tile for rows [row_begin, row_end) of x. Tiles count from id 0.
  Status ProjectTiles(const KernelContext& context, const PackedActivations& x, int64_t row_begin,
                      int64_t row_end, const LogitsTransform& transform, LmHeadScratch& scratch,
                      const LogitsTileFn& fn) const;

  // out[r - row_begin] = the logit of chosen[r - row_begin] in row r, the same bits as in its tile; -inf
  // where another rank holds it.
  Status ProjectChosen(const KernelContext& context, const PackedActivations& x, int64_t row_begin,
                       int64_t row_end, const LogitsTransform& transform, std::span<const int32_t> chosen,
                       LmHeadScratch& scratch, std::span<float> out) const;
};

}  // namespace plumbline

// The final norm and the projection to the vocabulary.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plumbline/kernels/gemm/gemm.h"

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

struct LmHead {
  std::shared_ptr<const PackedWeight> weight;  // [vocab, hidden]

  int64_t vocab() const { return weight->n(); }

  // logits [M, vocab] of x [M, hidden] (already normed).
  void Project(const KernelContext& context, const PackedActivations& x, const LogitsTransform& transform,
               MatrixView<float> logits) const;

  // The same logits, bit for bit, tile by tile for rows [row_begin, row_end) of x.
  Status ProjectTiles(const KernelContext& context, const PackedActivations& x, int64_t row_begin,
                      int64_t row_end, const LogitsTransform& transform, const LogitsTileFn& fn) const;

  // out[r - row_begin] = the logit of ids[r - row_begin] in row r, the same bits as in its tile.
  Status ProjectChosen(const KernelContext& context, const PackedActivations& x, int64_t row_begin,
                       int64_t row_end, const LogitsTransform& transform, std::span<const int32_t> ids,
                       std::span<float> out) const;
};

}  // namespace plumbline

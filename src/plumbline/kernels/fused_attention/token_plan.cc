#include "plumbline/kernels/fused_attention/token_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace plumbline {
namespace {

// Tokens of one batch row and side by segment, then position, then token.
struct Ranked {
  std::vector<int32_t> tokens;
  std::vector<int32_t> segments;   // by rank
  std::vector<int32_t> positions;  // by rank

  // The end of the run of one segment that begins at `begin`.
  int64_t RunEnd(int64_t begin) const {
    return std::upper_bound(segments.begin() + begin, segments.end(), segments[begin]) - segments.begin();
  }
};

Ranked Rank(const FusedTokenIds& ids, int64_t batch, int64_t tokens) {
  const int32_t* segments = ids.segments != nullptr ? ids.segments + batch * tokens : nullptr;
  const int32_t* positions = ids.positions != nullptr ? ids.positions + batch * tokens : nullptr;
  const auto segment = [&](int32_t t) { return segments != nullptr ? segments[t] : 1; };
  const auto position = [&](int32_t t) { return positions != nullptr ? positions[t] : t; };
  Ranked ranked;
  ranked.tokens.resize(tokens);
  std::iota(ranked.tokens.begin(), ranked.tokens.end(), 0);
  const auto before = [&](int32_t a, int32_t b) {
    return segment(a) != segment(b) ? segment(a) < segment(b) : position(a) < position(b);
  };
  if (!std::ranges::is_sorted(ranked.tokens, before)) std::ranges::stable_sort(ranked.tokens, before);
  for (const int32_t t : ranked.tokens) {
    ranked.segments.push_back(segment(t));
    ranked.positions.push_back(position(t));
  }
  return ranked;
}

class Planner {
 public:
  Planner(const FusedAttentionShape& shape, const FusedAttentionOptions& options) : options_(options) {
    plan_.row_padding.resize(shape.batch);
    plan_.key_padding.resize(shape.batch);
    plan_.batch_row_blocks.push_back(0);
    plan_.batch_key_blocks.push_back(0);
  }

  void AddBatchRow(int32_t b, const Ranked& q, const Ranked& kv) {
    int64_t i = 0, j = 0;
    const auto q_tokens = std::ssize(q.tokens), kv_tokens = std::ssize(kv.tokens);
    while (i < q_tokens || j < kv_tokens) {
      const int32_t segment = std::min(i < q_tokens ? q.segments[i] : std::numeric_limits<int32_t>::max(),
                                       j < kv_tokens ? kv.segments[j] : std::numeric_limits<int32_t>::max());
      const int64_t i_end = i < q_tokens && q.segments[i] == segment ? q.RunEnd(i) : i;
      const int64_t j_end = j < kv_tokens && kv.segments[j] == segment ? kv.RunEnd(j) : j;
      if (segment == 0) {
        plan_.row_padding[b].assign(q.tokens.begin() + i, q.tokens.begin() + i_end);
        plan_.key_padding[b].assign(kv.tokens.begin() + j, kv.tokens.begin() + j_end);
      } else {
        AddSegment(b, q, i, i_end, kv, j, j_end);
      }
      i = i_end;
      j = j_end;
    }
    plan_.batch_row_blocks.push_back(std::ssize(plan_.row_blocks));
    plan_.batch_key_blocks.push_back(std::ssize(plan_.key_blocks));
  }

  FusedTokenPlan Take() { return std::move(plan_); }

 private:
  void AddSegment(int32_t b, const Ranked& q, int64_t i, int64_t i_end, const Ranked& kv, int64_t j,
                  int64_t j_end) {
    const int64_t key_begin = std::ssize(plan_.key_blocks), row_begin = std::ssize(plan_.row_blocks);
    const int64_t key_end = key_begin + (j_end - j + 63) / 64, row_end = row_begin + (i_end - i + 63) / 64;
    for (int64_t first = j; first < j_end; first += 64) {
      const auto count = static_cast<int32_t>(std::min<int64_t>(64, j_end - first));
      plan_.key_blocks.push_back({b, count, key_begin, row_begin, row_end});
      AppendPadded(&plan_.key_tokens, &kv.tokens[first], count, -1);
    }
    const std::span<const int32_t> positions(kv.positions.data() + j, static_cast<size_t>(j_end - j));
    for (int64_t first = i; first < i_end; first += 64) {
      const auto count = static_cast<int32_t>(std::min<int64_t>(64, i_end - first));
      FusedRowBlock block = {b, count, key_begin, key_end, key_end - key_begin, 0};
      AppendPadded(&plan_.row_tokens, &q.tokens[first], count, -1);
      for (int64_t r = first; r < first + count; ++r) AddRange(q.positions[r], positions, &block);
      plan_.lo.resize(plan_.row_tokens.size(), 0);
      plan_.hi.resize(plan_.row_tokens.size(), 0);
      block.first_block = std::min(block.first_block, block.end_block);
      plan_.row_blocks.push_back(block);
    }
  }

  static void AppendPadded(std::vector<int32_t>* to, const int32_t* from, int32_t count, int32_t rest) {
    to->insert(to->end(), from, from + count);
    to->resize((to->size() + 63) / 64 * 64, rest);
  }

  void AddRange(int64_t c, std::span<const int32_t> positions, FusedRowBlock* block) {
    int64_t highest = std::numeric_limits<int64_t>::max();
    if (options_.causal) highest = c;
    if (options_.right >= 0) highest = std::min(highest, c + options_.right);
    const auto begin = positions.begin();
    const auto lo = options_.left >= 0 ? std::lower_bound(begin, positions.end(), c - options_.left,
                                                          [](int32_t p, int64_t bound) { return p < bound; })
                                       : begin;
    const auto hi =
        std::upper_bound(lo, positions.end(), highest, [](int64_t bound, int32_t p) { return bound < p; });
    plan_.lo.push_back(static_cast<int32_t>(lo - begin));
    plan_.hi.push_back(static_cast<int32_t>(hi - begin));
    if (lo == hi) return;
    block->first_block = std::min<int64_t>(block->first_block, (lo - begin) / 64);
    block->end_block = std::max<int64_t>(block->end_block, (hi - begin + 63) / 64);
  }

  const FusedAttentionOptions& options_;
  FusedTokenPlan plan_;
};

}  // namespace

bool FusedTokenPlan::Active(int64_t row_block, int64_t block) const {
  const FusedRowBlock& rows = row_blocks[row_block];
  if (block < rows.first_block || block >= rows.end_block) return false;
  for (int64_t slot = 64 * row_block; slot < 64 * row_block + rows.count; ++slot) {
    if (std::max<int64_t>(lo[slot], 64 * block) < std::min<int64_t>(hi[slot], 64 * block + 64)) return true;
  }
  return false;
}

FusedTokenPlan MakeFusedTokenPlan(const FusedAttentionShape& shape, const FusedAttentionOptions& options,
                                  const FusedTokenIds& q_ids, const FusedTokenIds& kv_ids) {
  Planner planner(shape, options);
  for (int64_t b = 0; b < shape.batch; ++b) {
    planner.AddBatchRow(static_cast<int32_t>(b), Rank(q_ids, b, shape.q_tokens),
                        Rank(kv_ids, b, shape.kv_tokens));
  }
  return planner.Take();
}

}  // namespace plumbline

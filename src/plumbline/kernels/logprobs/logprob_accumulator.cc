#include "plumbline/kernels/logprobs/logprob_accumulator.h"

#include <algorithm>
#include <limits>

#include "plumbline/base/check.h"
#include "plumbline/base/float_env.h"
#include "plumbline/kernels/logprobs/logprob_row.h"

namespace plumbline {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// top [k] = the best k, best first, of the lists [k] at every `stride`-th entry from `row_offset` on.
void BestOfLists(std::span<const TopEntry> lists, int64_t row_offset, int64_t stride,
                 std::span<TopEntry> top) {
  const int64_t k = std::ssize(top);
  std::fill(top.begin(), top.end(), TopEntry{-kInfinity, kEmptyId});
  if (k == 0) return;
  for (int64_t at = row_offset; at < std::ssize(lists); at += stride) {
    for (const TopEntry& entry : lists.subspan(at, k)) {
      if (RanksBefore(entry, top[0])) ReplaceWorst(top.data(), k, entry);
    }
  }
  std::sort(top.begin(), top.end(), RanksBefore);
}

int64_t SumOf(std::span<const int64_t> before, int64_t row, int64_t rows) {
  int64_t sum = 0;
  for (int64_t at = row; at < std::ssize(before); at += rows) sum += before[at];
  return sum;
}

}  // namespace

LogProbAccumulator::LogProbAccumulator(Isa isa, int threads, const LogProbShape& shape)
    : kernels_(&LogProbKernelsFor(isa)), isa_(isa), threads_(threads) {
  PLUMBLINE_CHECK(threads >= 1);
  Reset(shape);
}

void LogProbAccumulator::Reset(const LogProbShape& shape, int64_t tile_begin, int64_t tile_end) {
  PLUMBLINE_CHECK(shape.rows >= 0 && shape.top_k >= 0);
  PLUMBLINE_CHECK(shape.vocab >= 1 && shape.vocab <= std::numeric_limits<int32_t>::max());
  PLUMBLINE_CHECK(tile_begin >= 0 && tile_begin <= tile_end && tile_end <= shape.Tiles());
  shape_ = shape;
  tile_begin_ = tile_begin;
  tile_end_ = tile_end;
  const int64_t rows = shape.rows, tile_rows = (tile_end - tile_begin) * rows;
  chosen_.assign(rows, -1);
  chosen_logits_.assign(rows, kNan);
  tile_max_.assign(tile_rows, -kInfinity);
  tile_sum_.assign(tile_rows, 0.0f);
  before_.assign(threads_ * rows, 0);
  top_.assign(threads_ * rows * shape.Top(), TopEntry{-kInfinity, kEmptyId});
}

void LogProbAccumulator::SetChosen(std::span<const int32_t> chosen, std::span<const float> chosen_logits) {
  PLUMBLINE_CHECK(std::ssize(chosen) == shape_.rows && chosen_logits.size() == chosen.size());
  for (int32_t id : chosen) PLUMBLINE_CHECK(id >= -1 && id < shape_.vocab);
  chosen_.assign(chosen.begin(), chosen.end());
  chosen_logits_.assign(chosen_logits.begin(), chosen_logits.end());
}

void LogProbAccumulator::AddTile(int64_t tile, MatrixView<const float> logits, int thread) {
  const int64_t rows = shape_.rows, top = shape_.Top();
  const int64_t first = tile * kVocabTile;
  const int64_t width = std::min<int64_t>(kVocabTile, shape_.vocab - first);
  PLUMBLINE_CHECK(tile >= tile_begin_ && tile < tile_end_ && thread >= 0 && thread < threads_);
  PLUMBLINE_CHECK(logits.rows == rows && logits.cols == width);
  const ScopedFloatEnv float_env;
  for (int64_t row = 0; row < rows; ++row) {
    const float* x = logits.Row(row);
    const int64_t stats = (tile - tile_begin_) * rows + row;
    kernels_->tile_stats(x, width, &tile_max_[stats], &tile_sum_[stats]);
    const float max = tile_max_[stats];
    const int64_t at = thread * rows + row;
    // Most tiles hold nothing that could matter, which their maximum tells. Negated comparisons let NaN
    // through.
    if (chosen_[row] >= 0 && !(max < chosen_logits_[row])) {
      const int64_t below = std::clamp<int64_t>(chosen_[row] - first, 0, width);
      before_[at] += kernels_->count_before(x, width, chosen_logits_[row], below);
    }
    if (top > 0) {
      TopEntry* heap = &top_[at * top];
      if (!(max < heap[0].value)) kernels_->offer(x, width, static_cast<int32_t>(first), heap, top);
    }
  }
}

void LogProbAccumulator::Finish(const LogProbRows& out) const {
  PLUMBLINE_CHECK(tile_begin_ == 0 && tile_end_ == shape_.Tiles());
  // What a thread has counted and kept merges like a shard's.
  MergeLogProbShards(isa_, shape_, chosen_, chosen_logits_,
                     {.tile_max = tile_max_, .tile_sum = tile_sum_, .before = before_, .best = top_}, out);
}

void LogProbAccumulator::Export(const LogProbShard& out) const {
  const int64_t rows = shape_.rows, top = shape_.Top();
  PLUMBLINE_CHECK(out.tile_max.size() == tile_max_.size() && out.tile_sum.size() == tile_sum_.size());
  PLUMBLINE_CHECK(std::ssize(out.before) == rows && std::ssize(out.best) == rows * top);
  const ScopedFloatEnv float_env;
  std::copy(tile_max_.begin(), tile_max_.end(), out.tile_max.begin());
  std::copy(tile_sum_.begin(), tile_sum_.end(), out.tile_sum.begin());
  for (int64_t row = 0; row < rows; ++row) {
    out.before[row] = SumOf(before_, row, rows);
    BestOfLists(top_, row * top, rows * top, out.best.subspan(row * top, top));
  }
}

void MergeLogProbShards(Isa isa, const LogProbShape& shape, std::span<const int32_t> chosen,
                        std::span<const float> chosen_logits, const LogProbShards& shards,
                        const LogProbRows& out) {
  const int64_t rows = shape.rows, top = shape.Top();
  PLUMBLINE_CHECK(std::ssize(chosen) == rows && std::ssize(chosen_logits) == rows);
  PLUMBLINE_CHECK(std::ssize(shards.tile_max) == shape.Tiles() * rows);
  PLUMBLINE_CHECK(shards.tile_sum.size() == shards.tile_max.size());
  PLUMBLINE_CHECK(shards.before.size() * top == shards.best.size());
  PLUMBLINE_CHECK(std::ssize(out.chosen_logprobs) == rows && std::ssize(out.ranks) == rows);
  PLUMBLINE_CHECK(std::ssize(out.top) == rows * top);
  const ScopedFloatEnv float_env;
  const std::span<float> norms = out.chosen_logprobs;  // until each row's log-prob takes its norm's place
  LogProbKernelsFor(isa).norms(shards.tile_max.data(), shards.tile_sum.data(), shape.Tiles(), rows,
                               norms.data());
  for (int64_t row = 0; row < rows; ++row) {
    const float norm = norms[row];
    out.chosen_logprobs[row] = chosen[row] >= 0 ? LogProb(chosen_logits[row], norm) : kNan;
    out.ranks[row] = chosen[row] >= 0 ? 1 + SumOf(shards.before, row, rows) : 0;
    const std::span<TopEntry> best = out.top.subspan(row * top, top);
    BestOfLists(shards.best, row * top, rows * top, best);
    for (TopEntry& entry : best) {
      entry = entry.id != kEmptyId ? TopEntry{LogProb(entry.value, norm), entry.id}
                                   : TopEntry{kNan, static_cast<int32_t>(shape.vocab)};
    }
  }
}

}  // namespace plumbline

#include <algorithm>
#include <limits>

#include "plumbline/base/check.h"
#include "plumbline/base/float_env.h"
#include "plumbline/kernels/logprobs/logprob_row.h"

namespace plumbline {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

LogProbAccumulator::LogProbAccumulator(Isa isa, int threads, int64_t rows, int64_t vocab, int top_k)
    : kernels_(&LogProbKernelsFor(isa)),
      threads_(threads),
      rows_(rows),
      vocab_(vocab),
      tiles_((vocab + kVocabTile - 1) / kVocabTile),
      top_k_(std::min<int64_t>(top_k, vocab)),
      chosen_(static_cast<size_t>(rows), -1),
      chosen_logits_(static_cast<size_t>(rows), kNan),
      tile_max_(static_cast<size_t>(tiles_ * rows), -kInfinity),
      tile_sum_(static_cast<size_t>(tiles_ * rows), 0.0f),
      before_(static_cast<size_t>(threads * rows), 0),
      top_(static_cast<size_t>(threads * rows * top_k_), TopEntry{-kInfinity, kEmptyId}) {
  PLUMBLINE_CHECK(threads >= 1 && rows >= 0 && top_k >= 0);
  PLUMBLINE_CHECK(vocab >= 1 && vocab <= std::numeric_limits<int32_t>::max());
}

void LogProbAccumulator::SetChosen(std::span<const int32_t> chosen, std::span<const float> chosen_logits) {
  PLUMBLINE_CHECK(static_cast<int64_t>(chosen.size()) == rows_);
  PLUMBLINE_CHECK(chosen_logits.size() == chosen.size());
  for (int32_t id : chosen) PLUMBLINE_CHECK(id >= -1 && id < vocab_);
  chosen_.assign(chosen.begin(), chosen.end());
  chosen_logits_.assign(chosen_logits.begin(), chosen_logits.end());
}

void LogProbAccumulator::AddTile(int64_t tile, MatrixView<const float> logits, int thread) {
  const int64_t first = tile * kVocabTile;
  const int64_t width = std::min<int64_t>(kVocabTile, vocab_ - first);
  PLUMBLINE_CHECK(tile >= 0 && tile < tiles_ && thread >= 0 && thread < threads_);
  PLUMBLINE_CHECK(logits.rows == rows_ && logits.cols == width);
  const ScopedFloatEnv float_env;
  for (int64_t row = 0; row < rows_; ++row) {
    const float* x = logits.Row(row);
    float* max = &tile_max_[static_cast<size_t>(tile * rows_ + row)];
    kernels_->tile_stats(x, width, max, &tile_sum_[static_cast<size_t>(tile * rows_ + row)]);
    const int64_t at = thread * rows_ + row;
    // Most tiles hold nothing that could matter, which their maximum tells. Negated comparisons let NaN
    // through.
    const float chosen = chosen_logits_[static_cast<size_t>(row)];
    if (chosen_[static_cast<size_t>(row)] >= 0 && !(*max < chosen)) {
      const int64_t below = std::clamp<int64_t>(chosen_[static_cast<size_t>(row)] - first, 0, width);
      before_[static_cast<size_t>(at)] += kernels_->count_before(x, width, chosen, below);
    }
    if (top_k_ > 0) {
      TopEntry* heap = &top_[static_cast<size_t>(at * top_k_)];
      if (!(*max < heap[0].value)) kernels_->offer(x, width, static_cast<int32_t>(first), heap, top_k_);
    }
  }
}

std::vector<RowLogProbs> LogProbAccumulator::Finish() const {
  const ScopedFloatEnv float_env;
  std::vector<float> norm(static_cast<size_t>(rows_));
  kernels_->norms(tile_max_.data(), tile_sum_.data(), tiles_, rows_, norm.data());
  std::vector<RowLogProbs> results(static_cast<size_t>(rows_));
  std::vector<TopEntry> best;
  for (int64_t row = 0; row < rows_; ++row) {
    const float row_norm = norm[static_cast<size_t>(row)];
    RowLogProbs& result = results[static_cast<size_t>(row)];
    result.chosen_logprob = LogProb(chosen_logits_[static_cast<size_t>(row)], row_norm);
    result.rank = chosen_[static_cast<size_t>(row)] >= 0 ? 1 : 0;
    best.clear();
    for (int64_t thread = 0; thread < threads_; ++thread) {
      const int64_t at = thread * rows_ + row;
      result.rank += before_[static_cast<size_t>(at)];
      const auto heap = top_.begin() + at * top_k_;
      best.insert(best.end(), heap, heap + top_k_);
    }
    std::partial_sort(best.begin(), best.begin() + top_k_, best.end(), RanksBefore);
    result.top.reserve(static_cast<size_t>(top_k_));
    for (int64_t slot = 0; slot < top_k_; ++slot) {
      const TopEntry& entry = best[static_cast<size_t>(slot)];
      const bool used = entry.id != kEmptyId;
      result.top.emplace_back(used ? entry.id : static_cast<int32_t>(vocab_),
                              used ? LogProb(entry.value, row_norm) : kNan);
    }
  }
  return results;
}

}  // namespace plumbline

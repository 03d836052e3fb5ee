#include "plumbline/nn/row_scores.h"

#include <algorithm>
#include <array>

namespace plumbline {
namespace {

Range TilesOf(int64_t vocab, int ranks, int rank) {
  const Range ids = VocabOf(vocab, ranks, rank);
  return {(ids.begin + kVocabTile - 1) / kVocabTile, (ids.end + kVocabTile - 1) / kVocabTile};
}

// Typed arrays one after the other in one block of memory.
class Carver {
 public:
  explicit Carver(std::span<std::byte> memory) : next_(memory.data()) {}
  template <typename T>
  std::span<T> Take(int64_t count) {
    T* data = reinterpret_cast<T*>(next_);
    next_ += (count * static_cast<int64_t>(sizeof(T)) + 7) / 8 * 8;
    return {data, static_cast<size_t>(count)};
  }
  static int64_t Bytes(int64_t tiles, int64_t shards, int64_t rows, int64_t top) {
    return 2 * ((tiles * rows * 4 + 7) / 8 * 8) +
           shards * rows * (8 + top * static_cast<int64_t>(sizeof(TopEntry))) + 8;
  }

 private:
  std::byte* next_;
};

}  // namespace

void RowScores::Begin(const RankContext& rank, int64_t vocab, std::span<const int64_t> targets,
                      int64_t top_k) {
  rank_ = &rank;
  targets_ = targets;
  shape_ = {.rows = 0, .vocab = vocab, .top_k = top_k};
  logprobs_.resize(targets.size());
  ranks_.resize(targets.size());
  top_.resize(targets.size() * shape_.Top());
}

std::span<const int32_t> RowScores::BeginRows(int64_t row_begin, int64_t row_end) {
  row_begin_ = row_begin;
  shape_.rows = row_end - row_begin;
  chosen_.clear();
  wanted_.clear();
  for (int64_t target : targets_.subspan(row_begin, shape_.rows)) {
    chosen_.push_back(static_cast<int32_t>(target));
    wanted_.push_back(static_cast<int32_t>(std::max<int64_t>(target, 0)));
  }
  const Range tiles = TilesOf(shape_.vocab, rank_->stage.size(), rank_->stage.rank());
  if (!accumulator_) accumulator_.emplace(rank_->kernel.isa, rank_->kernel.pool.threads(), shape_);
  accumulator_->Reset(shape_, tiles.begin, tiles.end);
  return wanted_;
}

void RowScores::TakeChosen(std::span<const float> logits) {
  chosen_logits_.assign(logits.begin(), logits.end());
  accumulator_->SetChosen(chosen_, chosen_logits_);
}

void RowScores::TakeTile(int64_t tile, MatrixView<const float> logits, int thread) {
  accumulator_->AddTile(tile, logits, thread);
}

Status RowScores::EndRows() {
  const int64_t rows = shape_.rows;
  const LogProbRows out{.chosen_logprobs = std::span(logprobs_).subspan(row_begin_, rows),
                        .ranks = std::span(ranks_).subspan(row_begin_, rows),
                        .top = std::span(top_).subspan(row_begin_ * Top(), rows * Top())};
  if (rank_->stage.size() > 1) return Merge(out);
  accumulator_->Finish(out);
  return {};
}

Status RowScores::Merge(const LogProbRows& out) {
  Communicator& stage = rank_->stage;
  const int ranks = stage.size();
  const int64_t rows = shape_.rows, top = Top();
  std::array<int64_t, kMaxRanks> tiles, one, best;
  for (int r = 0; r < ranks; ++r) {
    tiles[r] = TilesOf(shape_.vocab, ranks, r).size() * rows;
    one[r] = rows;
    best[r] = rows * top;
  }
  const int64_t own_tiles = tiles[stage.rank()] / rows;
  ASSIGN_OR_RETURN(const std::span<std::byte> send,
                   send_.Get<std::byte>(Carver::Bytes(own_tiles, 1, rows, top)));
  ASSIGN_OR_RETURN(const std::span<std::byte> received,
                   received_.Get<std::byte>(Carver::Bytes(shape_.Tiles(), ranks, rows, top)));
  Carver mine(send), all(received);
  const LogProbShard shard{.tile_max = mine.Take<float>(own_tiles * rows),
                           .tile_sum = mine.Take<float>(own_tiles * rows),
                           .before = mine.Take<int64_t>(rows),
                           .best = mine.Take<TopEntry>(rows * top)};
  accumulator_->Export(shard);
  const auto tile_max = all.Take<float>(shape_.Tiles() * rows),
             tile_sum = all.Take<float>(shape_.Tiles() * rows);
  const auto before = all.Take<int64_t>(ranks * rows);
  const auto bests = all.Take<TopEntry>(ranks * rows * top);
  RETURN_IF_ERROR(AllGatherArrays<float>(stage, shard.tile_max, std::span(tiles).first(ranks), tile_max));
  RETURN_IF_ERROR(AllGatherArrays<float>(stage, shard.tile_sum, std::span(tiles).first(ranks), tile_sum));
  RETURN_IF_ERROR(AllGatherArrays<int64_t>(stage, shard.before, std::span(one).first(ranks), before));
  if (top > 0)
    RETURN_IF_ERROR(AllGatherArrays<TopEntry>(stage, shard.best, std::span(best).first(ranks), bests));
  MergeLogProbShards(rank_->kernel.isa, shape_, chosen_, chosen_logits_,
                     {.tile_max = tile_max, .tile_sum = tile_sum, .before = before, .best = bests}, out);
  return {};
}

}  // namespace plumbline

// The streaming form of log-probs: rows seen one vocabulary tile at a time, by one holder of the vocabulary
// or by several shards of consecutive tiles whose states are gathered and merged. Definitions as in
// logprobs.h; the bits are the same for any tiles' order, threads and shards. Memory is 8 bytes for each
// (row, tile) and for each (thread, row, top entry), never a row of logits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "plumbline/base/isa.h"
#include "plumbline/kernels/logprobs/logprobs.h"
#include "plumbline/kernels/logprobs/top_k.h"
#include "plumbline/tensor/matrix.h"

namespace plumbline {

struct LogProbKernels;

struct LogProbShape {
  int64_t rows = 0;
  int64_t vocab = 0;  // the whole one, also for a shard
  int64_t top_k = 0;  // entries wanted; a row has Top()

  int64_t Top() const { return std::min(top_k, vocab); }
  int64_t Tiles() const { return (vocab + kVocabTile - 1) / kVocabTile; }
};

// Where the numbers of every row go.
struct LogProbRows {
  std::span<float> chosen_logprobs;  // [rows]
  std::span<int64_t> ranks;          // [rows] 1 + #{v : x[v] > x[chosen], or equal with v < chosen}
  std::span<TopEntry> top;           // [rows, Top()] (log-prob, id), by (logit descending, id ascending)
};

// One shard's state after its tiles: plain arrays that may travel as bytes.
struct LogProbShard {
  std::span<float> tile_max;  // [own tiles, rows]
  std::span<float> tile_sum;  // [own tiles, rows]
  std::span<int64_t> before;  // [rows] own tokens that rank before the chosen one
  std::span<TopEntry> best;  // [rows, Top()] (logit, id) best first; (-inf, kEmptyId) where there are no more
};

// Those of all shards, concatenated in shard order; the shards' tiles ascend and are all of the vocabulary's.
struct LogProbShards {
  std::span<const float> tile_max;  // [tiles, rows]
  std::span<const float> tile_sum;  // [tiles, rows]
  std::span<const int64_t> before;  // [shards, rows]
  std::span<const TopEntry> best;   // [shards, rows, Top()]
};

// Collects rows of logits arriving as tiles [rows, <= 1024] in any order from any thread, each tile once.
class LogProbAccumulator {
 public:
  // Ready for `shape` with the whole vocabulary. Reset to no more rows, tiles and entries allocates nothing.
  LogProbAccumulator(Isa isa, int threads, const LogProbShape& shape);

  // Forgets everything; next come the tiles [tile_begin, tile_end) of `shape`, or all of them.
  void Reset(const LogProbShape& shape, int64_t tile_begin, int64_t tile_end);
  void Reset(const LogProbShape& shape) { Reset(shape, 0, shape.Tiles()); }

  // Before the first tile. chosen [rows] in [0, vocab), or -1: no token of interest (log-prob NaN, rank 0),
  // which is also what every row has without this call. chosen_logits[r] must be row r's own logit of
  // chosen[r] (the same bits as in its tile), also where another shard has that tile.
  void SetChosen(std::span<const int32_t> chosen, std::span<const float> chosen_logits);

  // logits [rows, tile width] of ids [tile * 1024, ...). Thread-safe across different (tile, thread) pairs.
  void AddTile(int64_t tile, MatrixView<const float> logits, int thread);

  // After every tile of the vocabulary: what MergeLogProbShards gives.
  void Finish(const LogProbRows& out) const;

  // After every tile of the shard.
  void Export(const LogProbShard& out) const;

 private:
  const LogProbKernels* kernels_;
  Isa isa_;
  int threads_;
  LogProbShape shape_;
  int64_t tile_begin_ = 0;
  int64_t tile_end_ = 0;
  std::vector<int32_t> chosen_;       // [rows]
  std::vector<float> chosen_logits_;  // [rows]
  std::vector<float> tile_max_;       // [own tiles, rows]
  std::vector<float> tile_sum_;       // [own tiles, rows]
  std::vector<int64_t> before_;       // [threads, rows]: tokens that rank before the chosen one
  std::vector<TopEntry> top_;         // [threads, rows, Top()], each a heap
};

// The numbers of every row from the states of all shards. chosen, chosen_logits [rows] as given to SetChosen.
// A row that holds NaN or +inf, or nothing above -inf, has NaN log-probs throughout (entries that NaN logits
// leave unfilled have id `vocab`): the caller rejects it. Outputs must not overlap inputs.
void MergeLogProbShards(Isa isa, const LogProbShape& shape, std::span<const int32_t> chosen,
                        std::span<const float> chosen_logits, const LogProbShards& shards,
                        const LogProbRows& out);

}  // namespace plumbline

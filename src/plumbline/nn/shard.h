// Which part of a decoder each rank holds. Pure functions of the configuration and the degrees of
// parallelism: every rank knows every other's part.
//
// Ranks of one stage are numbered replica-major, then by context shard, then by tensor shard. Rank 0 belongs
// to the last stage, so that results arrive where requests are scheduled:
//
//   rank = (((pp - 1 - stage) * dp + replica) * cp + context shard) * tp + tensor shard
#pragma once

#include <cstdint>
#include <vector>

#include "plumbline/base/status.h"
#include "plumbline/nn/decoder_config.h"

namespace plumbline {

inline constexpr int kMaxRanks = 64;

struct ParallelDegrees {
  int tp = 1;  // tensor: heads, feed-forward columns
  int dp = 1;  // data: sequences
  int pp = 1;  // pipeline: layers
  int cp = 1;  // context: KV pages
  int ep =
      1;  // experts: whole ones, over the tensor and data parallel ranks of a stage; 1: cut like dense layers

  int StageRanks() const { return tp * dp * cp; }
  int Ranks() const { return StageRanks() * pp; }
  bool operator==(const ParallelDegrees&) const = default;
};

struct RankCoordinates {
  int tensor = 0, replica = 0, stage = 0, context = 0;
  bool operator==(const RankCoordinates&) const = default;
};

RankCoordinates CoordinatesOf(const ParallelDegrees& degrees, int rank);
int RankOf(const ParallelDegrees& degrees, const RankCoordinates& at);

struct Range {
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// Part `part` of [0, n) in `parts` runs whose sizes differ by one at the most, the longer ones first.
Range SplitEvenly(int64_t n, int64_t parts, int64_t part);

// Refuses degrees below 1 and more than kMaxRanks ranks.
Status CheckDegreeSizes(const ParallelDegrees& degrees);

// Refuses what CheckDegreeSizes does, more stages than layers, an expert degree other than 1 and tp * dp, one
// that is more than 1 where there are no experts or fewer, and a tensor degree that is neither at most
// the KV-head count (its heads then go around as evenly as whole KV groups allow) nor a multiple of it that
// divides the query heads (ranks then share KV heads).
Status CheckDegrees(const DecoderConfig& config, const ParallelDegrees& degrees);

// The parts below need degrees that CheckDegrees accepts. A part may be empty where there are more ranks than
// pieces.
struct DecoderShard {
  ParallelDegrees degrees;
  RankCoordinates at;
  Range layers;               // of its stage
  Range heads;                // query heads
  Range kv_heads;             // those its query heads read; shared with other ranks where tp > kv_heads
  Range intermediate;         // feed-forward columns, cut at leaves of down_proj
  Range experts;              // of every sparse layer: all of them, or its run where ep > 1
  Range expert_intermediate;  // columns of each
  Range vocab;  // rows of the embedding and the head, whole tiles, cut over all ranks of a stage

  int ExpertRank() const { return at.replica * degrees.tp + at.tensor; }
  int StageRank() const { return (at.replica * degrees.cp + at.context) * degrees.tp + at.tensor; }
  bool FirstStage() const { return at.stage == 0; }
  bool LastStage() const { return at.stage == degrees.pp - 1; }
};

DecoderShard ShardOf(const DecoderConfig& config, const ParallelDegrees& degrees, int rank);

Range LayersOf(const DecoderConfig& config, const ParallelDegrees& degrees, int stage);
Range HeadsOf(const DecoderConfig& config, int tp, int tensor);
Range KvHeadsOf(const DecoderConfig& config, int tp, int tensor);
Range IntermediateOf(const DecoderConfig& config, int tp, int tensor);
// Of the expert-parallel rank `expert_rank`, which is replica * tp + tensor shard.
Range ExpertsOf(const DecoderConfig& config, const ParallelDegrees& degrees, int expert_rank);
Range ExpertIntermediateOf(const DecoderConfig& config, const ParallelDegrees& degrees, int tensor);
Range VocabOf(int64_t vocab, int stage_ranks, int stage_rank);

// How the k of a row-parallel weight with this leaf is cut: at `wanted` (one run a rank, in order, covering
// [0, k)) where all of its cuts are between leaves, else evenly by leaves; the ranks must then exchange
// columns first.
std::vector<Range> RowParallelCuts(int64_t k, int64_t leaf, const std::vector<Range>& wanted);

}  // namespace plumbline

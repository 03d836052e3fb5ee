#include "plumbline/nn/shard.h"

#include <algorithm>

#include "plumbline/kernels/logprobs/logprobs.h"
#include "plumbline/nn/leaf.h"

namespace plumbline {
namespace {

// Part `part` of [0, n) in whole pieces of `piece`, the last one perhaps shorter.
Range SplitPieces(int64_t n, int64_t piece, int64_t parts, int64_t part) {
  const Range pieces = SplitEvenly((n + piece - 1) / piece, parts, part);
  return {std::min(n, pieces.begin * piece), std::min(n, pieces.end * piece)};
}

}  // namespace

RankCoordinates CoordinatesOf(const ParallelDegrees& degrees, int rank) {
  const int in_stage = rank % degrees.StageRanks();
  return {.tensor = in_stage % degrees.tp,
          .replica = in_stage / (degrees.tp * degrees.cp),
          .stage = degrees.pp - 1 - rank / degrees.StageRanks(),
          .context = in_stage / degrees.tp % degrees.cp};
}

int RankOf(const ParallelDegrees& degrees, const RankCoordinates& at) {
  const int in_stage = (at.replica * degrees.cp + at.context) * degrees.tp + at.tensor;
  return (degrees.pp - 1 - at.stage) * degrees.StageRanks() + in_stage;
}

Range SplitEvenly(int64_t n, int64_t parts, int64_t part) {
  const int64_t each = n / parts, more = n % parts;
  const int64_t begin = part * each + std::min(part, more);
  return {begin, begin + each + (part < more ? 1 : 0)};
}

Status CheckDegreeSizes(const ParallelDegrees& degrees) {
  for (const auto& [name, degree] : {std::pair{"--tp", degrees.tp},
                                     {"--dp", degrees.dp},
                                     {"--pp", degrees.pp},
                                     {"--cp", degrees.cp},
                                     {"--ep", degrees.ep}}) {
    if (degree < 1 || degree > kMaxRanks)
      return InvalidInput("{}: got {}, want 1 to {}", name, degree, kMaxRanks);
  }
  if (degrees.Ranks() > kMaxRanks) {
    return InvalidInput("--tp x --dp x --pp x --cp: got {} ranks, want at most {}", degrees.Ranks(),
                        kMaxRanks);
  }
  return {};
}

Status CheckDegrees(const DecoderConfig& config, const ParallelDegrees& degrees) {
  RETURN_IF_ERROR(CheckDegreeSizes(degrees));
  if (degrees.pp > config.layers) {
    return InvalidInput("--pp: got {} stages, want at most the model's {} layers", degrees.pp, config.layers);
  }
  const int tp = degrees.tp, ep = degrees.ep;
  if (ep > 1 && config.experts.count == 0)
    return InvalidInput("--ep: got {}, want 1 of a model without experts", ep);
  if (ep > 1 && ep != tp * degrees.dp) {
    return InvalidInput("--ep: got {}, want 1 or all {} ranks of --tp x --dp", ep, tp * degrees.dp);
  }
  if (ep > 1 && ep > config.experts.count) {
    return InvalidInput("--ep: got {}, want at most the model's {} experts", ep, config.experts.count);
  }
  if (tp > config.kv_heads && (tp % config.kv_heads != 0 || config.heads % tp != 0)) {
    return InvalidInput(
        "--tp: got {}, want at most the model's {} KV heads, or a multiple of them that divides its {} query "
        "heads",
        tp, config.kv_heads, config.heads);
  }
  return {};
}

Range LayersOf(const DecoderConfig& config, const ParallelDegrees& degrees, int stage) {
  return SplitEvenly(config.layers, degrees.pp, stage);
}

Range HeadsOf(const DecoderConfig& config, int tp, int tensor) {
  if (tp > config.kv_heads) return SplitEvenly(config.heads, tp, tensor);
  const Range kv = SplitEvenly(config.kv_heads, tp, tensor);
  const int64_t group = config.heads / config.kv_heads;
  return {kv.begin * group, kv.end * group};
}

Range KvHeadsOf(const DecoderConfig& config, int tp, int tensor) {
  if (tp <= config.kv_heads) return SplitEvenly(config.kv_heads, tp, tensor);
  const int64_t kv_head = tensor / (tp / config.kv_heads);
  return {kv_head, kv_head + 1};
}

Range IntermediateOf(const DecoderConfig& config, int tp, int tensor) {
  return SplitPieces(config.intermediate, kMaxLeaf, tp, tensor);
}

Range ExpertsOf(const DecoderConfig& config, const ParallelDegrees& degrees, int expert_rank) {
  return degrees.ep > 1 ? SplitEvenly(config.experts.count, degrees.ep, expert_rank)
                        : Range{0, config.experts.count};
}

Range ExpertIntermediateOf(const DecoderConfig& config, const ParallelDegrees& degrees, int tensor) {
  if (degrees.ep > 1) return {0, config.experts.intermediate};
  return SplitPieces(config.experts.intermediate, kMaxLeaf, degrees.tp, tensor);
}

Range VocabOf(int64_t vocab, int stage_ranks, int stage_rank) {
  return SplitPieces(vocab, kVocabTile, stage_ranks, stage_rank);
}

DecoderShard ShardOf(const DecoderConfig& config, const ParallelDegrees& degrees, int rank) {
  DecoderShard shard{.degrees = degrees, .at = CoordinatesOf(degrees, rank)};
  shard.layers = LayersOf(config, degrees, shard.at.stage);
  shard.heads = HeadsOf(config, degrees.tp, shard.at.tensor);
  shard.kv_heads = KvHeadsOf(config, degrees.tp, shard.at.tensor);
  shard.intermediate = IntermediateOf(config, degrees.tp, shard.at.tensor);
  shard.experts = ExpertsOf(config, degrees, shard.ExpertRank());
  shard.expert_intermediate = ExpertIntermediateOf(config, degrees, shard.at.tensor);
  shard.vocab = VocabOf(config.vocab, degrees.StageRanks(), shard.StageRank());
  return shard;
}

std::vector<Range> RowParallelCuts(int64_t k, int64_t leaf, const std::vector<Range>& wanted) {
  const bool aligned =
      std::ranges::all_of(wanted, [&](const Range& r) { return r.end % leaf == 0 || r.end == k; });
  if (aligned) return wanted;
  std::vector<Range> cuts;
  const int64_t ranks = static_cast<int64_t>(wanted.size());
  for (int64_t rank = 0; rank < ranks; ++rank) cuts.push_back(SplitPieces(k, leaf, ranks, rank));
  return cuts;
}

}  // namespace plumbline

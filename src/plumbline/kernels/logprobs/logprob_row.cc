#include "plumbline/kernels/logprobs/logprob_row.h"

#include <algorithm>
#include <array>
#include <vector>

namespace plumbline {

const LogProbKernels& LogProbKernelsFor(Isa isa) {
  return ForIsa(isa, isa_avx2::kLogProbKernels, isa_avx512::kLogProbKernels,
                isa_avx512_bf16::kLogProbKernels);
}

OutputPosition PositionOf(const LogProbInputs& in, int64_t output) {
  // The last sequence that begins at or before `output` is the one that holds it: those without outputs begin
  // where the next one does.
  const auto begin = in.lp_output_offsets.begin();
  const auto after = std::upper_bound(begin, in.lp_output_offsets.end(), static_cast<uint64_t>(output));
  const int64_t b = after - begin - 1;
  const int64_t from_end = int64_t{in.lp_output_offsets[b + 1]} - output - 1;
  const uint32_t token =
      from_end == 0 ? in.sampled_tokens[b] : in.tokens[in.token_row_offsets[b + 1] - from_end];
  return {b, int64_t{in.logit_row_offsets[b + 1]} - from_end - 1, token};
}

float RowNormAndTop(const LogProbKernels& kernels, std::span<const float> x, std::span<TopEntry> top) {
  const int64_t vocab = static_cast<int64_t>(x.size());
  const int64_t tiles = (vocab + kVocabTile - 1) / kVocabTile;
  // Vocabularies of half a million ids and less need no memory of the heap's.
  std::array<float, 1024> few;
  std::vector<float> many(2 * tiles > std::ssize(few) ? static_cast<size_t>(2 * tiles) : 0);
  float* const stats = many.empty() ? few.data() : many.data();
  std::fill(top.begin(), top.end(), TopEntry{-std::numeric_limits<float>::infinity(), kEmptyFiniteId});
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t first = tile * kVocabTile;
    const int64_t width = std::min<int64_t>(kVocabTile, vocab - first);
    float* max = stats + tile;
    kernels.tile_stats(&x[static_cast<size_t>(first)], width, max, max + tiles);
    // Negated, so that a tile with a NaN is looked at: its other logits may still be among the best.
    if (!top.empty() && !(*max <= top[0].value)) {
      kernels.offer(&x[static_cast<size_t>(first)], width, static_cast<int32_t>(first), top.data(),
                    static_cast<int64_t>(top.size()));
    }
  }
  std::sort(top.begin(), top.end(), RanksBefore);
  float norm;
  kernels.norms(stats, stats + tiles, tiles, 1, &norm);
  return norm;
}

}  // namespace plumbline

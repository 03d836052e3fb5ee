#include "plumbline/kernels/fused_attention/attention_tokens.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace plumbline {

FusedTokens AllTokens(int64_t batch, int64_t tokens) {
  FusedTokens all;
  all.segments.assign(batch * tokens, 1);
  all.positions.resize(batch * tokens);
  for (int64_t b = 0; b < batch; ++b) {
    std::iota(all.positions.begin() + b * tokens, all.positions.begin() + (b + 1) * tokens, 0);
  }
  return all;
}

Result<FusedTokens> TokensFromLengths(std::span<const int32_t> lengths, int64_t tokens) {
  FusedTokens made = AllTokens(std::ssize(lengths), tokens);
  for (int64_t b = 0; b < std::ssize(lengths); ++b) {
    if (lengths[b] < 0 || lengths[b] > tokens) {
      return InvalidInput("sequence length: got {}, want 0 to {} (batch row {})", lengths[b], tokens, b);
    }
    std::fill_n(made.segments.begin() + b * tokens + lengths[b], tokens - lengths[b], 0);
  }
  return made;
}

Result<FusedTokens> TokensFromOffsets(std::span<const int32_t> lengths, std::span<const int32_t> offsets,
                                      int64_t batch, int64_t slots, int64_t tokens) {
  if (std::ssize(lengths) != batch * slots || std::ssize(offsets) != batch * (slots + 1)) {
    return InvalidInput("segment lengths and offsets: got {} and {}, want {} and {}", lengths.size(),
                        offsets.size(), batch * slots, batch * (slots + 1));
  }
  FusedTokens made;
  made.segments.assign(batch * tokens, 0);
  made.positions.assign(batch * tokens, 0);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t s = 0; s < slots; ++s) {
      const int64_t length = lengths[b * slots + s], start = offsets[b * (slots + 1) + s];
      if (length <= 0) continue;
      if (start < 0 || start + length > tokens) {
        return InvalidInput("segment: got tokens {} to {}, want 0 to {} (batch row {}, slot {})", start,
                            start + length, tokens, b, s);
      }
      for (int64_t i = 0; i < length; ++i) {
        int32_t& segment = made.segments[b * tokens + start + i];
        if (segment != 0) {
          return InvalidInput("token {}: got segments {} and {}, want one (batch row {})", start + i, segment,
                              s + 1, b);
        }
        segment = static_cast<int32_t>(s + 1);
        made.positions[b * tokens + start + i] = static_cast<int32_t>(i);
      }
    }
  }
  return made;
}

Result<FusedTokens> TokensFromSegments(std::span<const int32_t> segments,
                                       std::span<const int32_t> positions) {
  if (segments.size() != positions.size()) {
    return InvalidInput("segment positions: got {}, want {}, one for each id", positions.size(),
                        segments.size());
  }
  const auto negative = std::ranges::find_if(segments, [](int32_t id) { return id < 0; });
  if (negative != segments.end()) {
    return InvalidInput("segment id: got {}, want at least 0 (token {})", *negative,
                        negative - segments.begin());
  }
  return FusedTokens{{segments.begin(), segments.end()}, {positions.begin(), positions.end()}};
}

Result<FusedTokenPair> TokensFromMask(std::span<const uint8_t> masked, FusedMask mask, int64_t batch,
                                      int64_t q_tokens, int64_t kv_tokens) {
  if (std::ssize(masked) != batch * q_tokens * kv_tokens) {
    return InvalidInput("mask: got {} elements, want {}", masked.size(), batch * q_tokens * kv_tokens);
  }
  std::vector<int32_t> q_lengths(batch), kv_lengths(batch);
  for (int64_t b = 0; b < batch && kv_tokens > 0; ++b) {
    for (int64_t i = 0; i < q_tokens; ++i) {
      const auto row = masked.subspan((b * q_tokens + i) * kv_tokens, kv_tokens);
      q_lengths[b] += row[0] == 0 ? 1 : 0;
      if (i > 0 && mask == FusedMask::kPadding) continue;
      kv_lengths[b] = std::max(kv_lengths[b], static_cast<int32_t>(std::ranges::count(row, uint8_t{0})));
    }
  }
  FusedTokenPair pair;
  ASSIGN_OR_RETURN(pair.q, TokensFromLengths(q_lengths, q_tokens));
  ASSIGN_OR_RETURN(pair.kv, TokensFromLengths(kv_lengths, kv_tokens));
  return pair;
}

void AlignBottomRight(int64_t batch, FusedTokens* q, const FusedTokens& kv) {
  if (batch == 0) return;
  const int64_t q_tokens = std::ssize(q->segments) / batch, kv_tokens = std::ssize(kv.segments) / batch;
  std::unordered_map<int32_t, int32_t> excess;  // kv tokens - q tokens, by segment
  for (int64_t b = 0; b < batch; ++b) {
    excess.clear();
    for (int64_t i = 0; i < q_tokens; ++i) --excess[q->segments[b * q_tokens + i]];
    for (int64_t j = 0; j < kv_tokens; ++j) ++excess[kv.segments[b * kv_tokens + j]];
    for (int64_t i = 0; i < q_tokens; ++i) {
      q->positions[b * q_tokens + i] += excess[q->segments[b * q_tokens + i]];
    }
  }
}

void ResolveMask(FusedMask mask, int64_t batch, int64_t q_tokens, int64_t kv_tokens, FusedTokenPair* tokens) {
  if (!IsPaddingMask(mask)) *tokens = {AllTokens(batch, q_tokens), AllTokens(batch, kv_tokens)};
  if (IsBottomRight(mask)) AlignBottomRight(batch, &tokens->q, tokens->kv);
}

}  // namespace plumbline

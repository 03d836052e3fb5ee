// Segments and positions of tokens from every form of sequence descriptor, with the mask type resolved:
// what FusedTokenIds point at, and the rest of the mask rule.
//
// Batch rows and segments are paired by their own numbers: a segment that is empty on one side, or lengths
// that differ between rows, shift nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plumbline/base/status.h"
#include "plumbline/kernels/fused_attention/fused_attention.h"

namespace plumbline {

enum class FusedMask : uint8_t {
  kNone,
  kPadding,
  kCausal,
  kPaddingCausal,
  kCausalBottomRight,
  kPaddingCausalBottomRight,
};

constexpr bool IsPaddingMask(FusedMask mask) {
  return mask == FusedMask::kPadding || mask == FusedMask::kPaddingCausal ||
         mask == FusedMask::kPaddingCausalBottomRight;
}
constexpr bool IsBottomRight(FusedMask mask) {
  return mask == FusedMask::kCausalBottomRight || mask == FusedMask::kPaddingCausalBottomRight;
}
constexpr bool IsCausalMask(FusedMask mask) {
  return mask != FusedMask::kNone && mask != FusedMask::kPadding;
}

// One side of a batch: S tokens in each of B rows.
struct FusedTokens {
  std::vector<int32_t> segments;   // [B, S], 0 = padding
  std::vector<int32_t> positions;  // [B, S]

  FusedTokenIds Ids() const { return {segments.data(), positions.data()}; }
};

// Every token valid: segment 1, positions 0 .. S - 1.
FusedTokens AllTokens(int64_t batch, int64_t tokens);

// lengths [B]: row b has lengths[b] tokens at its start. Error: a length outside [0, tokens].
Result<FusedTokens> TokensFromLengths(std::span<const int32_t> lengths, int64_t tokens);

// Packed rows: lengths [B, slots], negative for an unused slot; offsets [B, slots + 1], row-local starts
// (the last one is not used). The tokens of slot s are segment s + 1. Errors: a slot outside its row, two
// slots that overlap.
Result<FusedTokens> TokensFromOffsets(std::span<const int32_t> lengths, std::span<const int32_t> offsets,
                                      int64_t batch, int64_t slots, int64_t tokens);

// Copies ids and positions, both [B, S]. Error: a negative id.
Result<FusedTokens> TokensFromSegments(std::span<const int32_t> segments, std::span<const int32_t> positions);

struct FusedTokenPair {
  FusedTokens q;
  FusedTokens kv;
};

// A boolean mask [B, 1, q_tokens, kv_tokens], non-zero = masked, padding at the ends only: the length of q is
// the number of zeros in column 0; that of kv the number of zeros in row 0 for kPadding, the most in any row
// for the others.
Result<FusedTokenPair> TokensFromMask(std::span<const uint8_t> masked, FusedMask mask, int64_t batch,
                                      int64_t q_tokens, int64_t kv_tokens);

// For the mask types aligned at the bottom right: moves the positions of every query segment by (kv tokens -
// q tokens) of that segment, after which the top-left rule says the same.
void AlignBottomRight(int64_t batch, FusedTokens* q, const FusedTokens& kv);

// The whole of a mask type: replaces the tokens of a mask without padding by AllTokens, and aligns.
void ResolveMask(FusedMask mask, int64_t batch, int64_t q_tokens, int64_t kv_tokens, FusedTokenPair* tokens);

}  // namespace plumbline

// The k best (value, token id) pairs seen so far, as a binary heap of plain floats and integers whose root is
// the worst of them. Pairs are totally ordered by (value descending, id ascending), so what remains does not
// depend on the order of arrival. NaN ranks before nothing and must be kept out by the caller. Safe in
// *_isa.cc files.
#pragma once

#include <cstdint>

namespace plumbline {

struct TopEntry {
  float value;
  int32_t id;
};

// A heap starts as k such entries. kEmptyId admits -inf logits after every finite one; kEmptyFiniteId ranks
// before them, so that they never enter.
inline constexpr int32_t kEmptyId = INT32_MAX;
inline constexpr int32_t kEmptyFiniteId = -1;

static inline bool RanksBefore(TopEntry a, TopEntry b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}

// Replaces the root (the worst) of heap [k], k >= 1, by `entry`, which ranks before it.
static inline void ReplaceWorst(TopEntry* heap, int64_t k, TopEntry entry) {
  int64_t at = 0;
  for (int64_t child = 1; child < k; child = 2 * at + 1) {
    if (child + 1 < k && RanksBefore(heap[child], heap[child + 1])) ++child;
    if (!RanksBefore(entry, heap[child])) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = entry;
}

}  // namespace plumbline

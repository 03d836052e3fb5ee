#include <algorithm>
#include <array>
#include <cstring>
#include <queue>

#include "plumbline/text/bpe_model.h"

namespace plumbline {
namespace {

// Up to here looking at every pair for each merge is faster than keeping a queue.
constexpr size_t kShortWord = 32;

void MergeShort(const MergeTable& merges, std::vector<int32_t>& symbols) {
  std::array<MergeTable::Merge, kShortWord> pairs;  // pairs[i]: of symbols i and i + 1
  size_t n = symbols.size();
  for (size_t i = 0; i + 1 < n; ++i) pairs[i] = merges.Find(symbols[i], symbols[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].id < 0) break;
    symbols[best] = pairs[best].id;
    // Symbol best + 1 and pair best + 1 go; pairs best - 1 and best are new.
    std::copy(symbols.begin() + best + 2, symbols.begin() + n, symbols.begin() + best + 1);
    if (best + 2 < n) std::copy(pairs.begin() + best + 2, pairs.begin() + n - 1, pairs.begin() + best + 1);
    --n;
    if (best + 1 < n) pairs[best] = merges.Find(symbols[best], symbols[best + 1]);
    if (best > 0) pairs[best - 1] = merges.Find(symbols[best - 1], symbols[best]);
  }
  symbols.resize(n);
}

// A pair that may have a merge, found when the symbol at `left` was followed by the one at `right`.
struct Candidate {
  uint32_t rank;
  uint32_t left, right;
  int32_t id;  // what they become
  int32_t left_id, right_id;
};
struct Later {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  }
};

void MergeLong(const MergeTable& merges, std::vector<int32_t>& symbols) {
  constexpr uint32_t kEnd = UINT32_MAX;
  constexpr int32_t kGone = -1;
  const auto n = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t> next(n), previous(n);
  std::vector<Candidate> initial;
  initial.reserve(n);
  std::priority_queue<Candidate, std::vector<Candidate>, Later> queue(Later{}, std::move(initial));
  const auto offer = [&](uint32_t left, uint32_t right) {
    const MergeTable::Merge merge = merges.Find(symbols[left], symbols[right]);
    if (merge.id >= 0) queue.push({merge.rank, left, right, merge.id, symbols[left], symbols[right]});
  };
  for (uint32_t i = 0; i < n; ++i) {
    next[i] = i + 1 < n ? i + 1 : kEnd;
    previous[i] = i > 0 ? i - 1 : kEnd;
    if (i + 1 < n) offer(i, i + 1);
  }
  while (!queue.empty()) {
    const Candidate c = queue.top();
    queue.pop();
    // Either symbol may have become part of another since.
    if (symbols[c.left] != c.left_id || symbols[c.right] != c.right_id || next[c.left] != c.right) continue;
    symbols[c.left] = c.id;
    symbols[c.right] = kGone;
    next[c.left] = next[c.right];
    if (next[c.left] != kEnd) {
      previous[next[c.left]] = c.left;
      offer(c.left, next[c.left]);
    }
    if (previous[c.left] != kEnd) offer(previous[c.left], c.left);
  }
  std::erase(symbols, kGone);
}

}  // namespace

void MergeSymbols(const MergeTable& merges, std::vector<int32_t>& symbols) {
  if (symbols.size() <= kShortWord) {
    MergeShort(merges, symbols);
  } else {
    MergeLong(merges, symbols);
  }
}

}  // namespace plumbline

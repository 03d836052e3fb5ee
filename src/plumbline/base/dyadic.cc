#include "plumbline/base/dyadic.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace plumbline {
namespace {

// Long enough that a step costs little beside its additions, short enough that all that waits stays in L1.
constexpr int64_t kBlock = 128;
// Waiting nodes have strictly falling levels.
constexpr int kMaxDepth = 64;

void AddRows(const float* a, const float* b, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

}  // namespace

DyadicNode LargestNode(int64_t leaves, int64_t begin, int64_t end) {
  PLUMBLINE_CHECK(0 <= begin && begin < end && end <= leaves);
  int level = 0;
  while (begin + (int64_t{1} << level) < end) {
    const int64_t width = int64_t{2} << level;
    if (begin % width != 0 || std::min(begin + width, leaves) > end) break;
    ++level;
  }
  return {level, begin >> level, begin, std::min(begin + (int64_t{1} << level), leaves)};
}

LeafSplit::LeafSplit(std::vector<int64_t> offsets) : offsets_(std::move(offsets)) {
  PLUMBLINE_CHECK(offsets_.size() >= 2 && offsets_.front() == 0);
  node_offsets_.push_back(0);
  for (int rank = 0; rank < ranks(); ++rank) {
    PLUMBLINE_CHECK(begin(rank) <= end(rank));
    for (int64_t leaf = begin(rank); leaf < end(rank); leaf = nodes_.back().end) {
      nodes_.push_back(LargestNode(leaves(), leaf, end(rank)));
    }
    node_offsets_.push_back(static_cast<int64_t>(nodes_.size()));
  }
  std::vector<bool> combined(nodes_.size());
  FoldDyadic(leaves(), nodes_, [&](int64_t left, int64_t right, int depth) {
    steps_.push_back({combined[left] ? -1 : static_cast<int32_t>(left),
                      combined[right] ? -1 : static_cast<int32_t>(right), depth});
    combined[left] = true;
  });
}

LeafSplit LeafSplit::Even(int64_t leaves, int ranks) {
  std::vector<int64_t> offsets = {0};
  for (int64_t rank = 0; rank < ranks; ++rank) {
    offsets.push_back(offsets.back() + leaves / ranks + (rank < leaves % ranks ? 1 : 0));
  }
  return LeafSplit(std::move(offsets));
}

void SumNodes(const LeafSplit& split, std::span<const float* const> rows, int64_t columns, float* out) {
  PLUMBLINE_CHECK(rows.size() == split.nodes().size());
  if (rows.empty()) {
    std::fill_n(out, columns, 0.0f);
    return;
  }
  if (rows.size() == 1) {
    if (rows[0] != out) std::copy_n(rows[0], columns, out);
    return;
  }
  const std::span<const LeafSplit::Step> steps = split.steps();
  alignas(64) float value[kMaxDepth][kBlock];
  for (int64_t c = 0; c < columns; c += kBlock) {
    const int64_t n = std::min(kBlock, columns - c);
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto [left, right, depth] = steps[i];
      const float* a = left < 0 ? value[depth] : rows[left] + c;
      const float* b = right < 0 ? value[depth + 1] : rows[right] + c;
      AddRows(a, b, n, i + 1 == steps.size() ? out + c : value[depth]);
    }
  }
}

}  // namespace plumbline

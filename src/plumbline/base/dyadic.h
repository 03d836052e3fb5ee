// The dyadic reduction of the numerics contract (docs/numerics.md, "Sums that may be split") for leaves that
// several holders have: which nodes a run of leaves makes, and how the nodes of all runs become the root.
//
//   node(0, i)     = leaf i
//   node(L + 1, i) = combine(node(L, 2i), node(L, 2i + 1)), or node(L, 2i) where there is no right child
//
// A node of `count` leaves is itself the root of a tree over `count` leaves, so whoever reduces leaves
// [begin, end) of it counts them from 0 and needs to know nothing of the whole.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plumbline/base/check.h"

namespace plumbline {

// node(level, index): leaves [begin, end), where end - begin is 2^level, or less where the leaves end.
struct DyadicNode {
  int level = 0;
  int64_t index = 0;
  int64_t begin = 0;
  int64_t end = 0;

  bool operator==(const DyadicNode&) const = default;
};

// The largest node of a tree over `leaves` that begins at `begin` and holds nothing at or beyond `end`, at
// the lowest level that holds it. 0 <= begin < end <= leaves. Called again from its end on, it lists the
// maximal nodes of a run: at most 2 log2(leaves), one where the run is aligned.
DyadicNode LargestNode(int64_t leaves, int64_t begin, int64_t end);

// Folds nodes that cover leaves [0, leaves) in ascending order into the root. combine(left, right, depth)
// replaces the value of nodes[left] by combine(left, right) and may forget that of nodes[right]; the root
// ends in nodes[0]. `depth` is the number of values that wait to the left of `left`: those alive at one time
// have different depths, and a `right` that was combined before is at depth + 1.
template <typename Combine>
void FoldDyadic(int64_t leaves, std::span<const DyadicNode> nodes, Combine&& combine) {
  struct Waiting {
    int64_t slot;
    int level;
    int64_t index;
  };
  Waiting waiting[64];
  int depth = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(nodes.size()); ++i) {
    Waiting node = {i, nodes[i].level, nodes[i].index};
    const bool last = nodes[i].end == leaves;
    while (depth > 0 && ((node.index & 1) != 0 || last)) {
      if ((node.index & 1) != 0) {
        const Waiting& left = waiting[--depth];
        PLUMBLINE_CHECK(left.level == node.level && left.index + 1 == node.index);
        combine(left.slot, node.slot, depth);
        node.slot = left.slot;
      }
      ++node.level;
      node.index >>= 1;
    }
    waiting[depth++] = node;
  }
}

// Who holds which leaves, in rank order, and everything about the tree that does not depend on the values.
// Made once, used for every sum that is cut alike.
class LeafSplit {
 public:
  // Where the value of a step's side lies: node `ordinal` of nodes(), or, if negative, the result of an
  // earlier step.
  struct Step {
    int32_t left;
    int32_t right;
    int32_t depth;
  };

  LeafSplit() : LeafSplit({0, 0}) {}
  // Rank r holds leaves [offsets[r], offsets[r + 1]); offsets [ranks + 1] begin at 0 and never fall.
  explicit LeafSplit(std::vector<int64_t> offsets);
  // As even as whole leaves allow, the larger runs first.
  static LeafSplit Even(int64_t leaves, int ranks);

  int ranks() const { return static_cast<int>(offsets_.size()) - 1; }
  int64_t leaves() const { return offsets_.back(); }
  int64_t begin(int rank) const { return offsets_[rank]; }
  int64_t end(int rank) const { return offsets_[rank + 1]; }
  // The nodes of all ranks in tree order, and those of one rank, which are consecutive among them.
  std::span<const DyadicNode> nodes() const { return nodes_; }
  std::span<const DyadicNode> nodes(int rank) const { return nodes().subspan(first(rank), count(rank)); }
  int64_t first(int rank) const { return node_offsets_[rank]; }
  int64_t count(int rank) const { return node_offsets_[rank + 1] - node_offsets_[rank]; }
  // The additions of FoldDyadic in order: value(depth) = left + right, where a negative left is value(depth)
  // and a negative right is value(depth + 1).
  std::span<const Step> steps() const { return steps_; }

 private:
  std::vector<int64_t> offsets_;
  std::vector<DyadicNode> nodes_;
  std::vector<int64_t> node_offsets_;
  std::vector<Step> steps_;
};

// out [columns] = root of the tree with combine = a + b, column by column; rows[i] [columns] is the value of
// split.nodes()[i]. No leaves: zeros. `out` may be rows[i] for one i or overlap none. Call under
// ScopedFloatEnv.
void SumNodes(const LeafSplit& split, std::span<const float* const> rows, int64_t columns, float* out);

}  // namespace plumbline

// The leaf length of a weight's reduction over k (numerics contract, section 2): a property of the model's
// configuration and the weight's quantisation, never of how a run is split.
#pragma once

#include <algorithm>
#include <cstdint>

#include "plumbline/base/dtype.h"

namespace plumbline {

inline constexpr int64_t kMaxLeaf = 256;

// `granule`: the run of k that ranks never split (0: any cut at leaf boundaries will do). The largest divisor
// of the granule that is at most 256, even, and a multiple of the quantisation block; 256 where there is
// none.
inline int64_t LeafLength(int64_t granule, DType dtype) {
  const int64_t step = std::max<int64_t>(2, Info(dtype).block_elements);
  for (int64_t leaf = kMaxLeaf / step * step; leaf >= step && granule > 0; leaf -= step) {
    if (granule % leaf == 0) return leaf;
  }
  return kMaxLeaf;
}

}  // namespace plumbline

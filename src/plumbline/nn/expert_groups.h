// The rows of a step as the experts see them: pairs of a row and one of its experts, numbered expert by
// expert and, within one, by row.
#pragma once

#include <cstdint>
#include <vector>

#include "plumbline/tensor/matrix.h"

namespace plumbline {

struct ExpertGroups {
  std::vector<int64_t> offsets;  // [experts + 1] the first pair of each expert
  std::vector<int32_t> rows;     // [pairs]
  std::vector<int32_t> slots;    // [rows, choices a row] the pair of each

  // Memory for as much as will ever be built.
  void Reserve(int64_t experts, int64_t pairs);
  // ids [rows, choices], each in [0, experts).
  void Build(MatrixView<const int32_t> ids, int64_t experts);

  int64_t pairs() const { return offsets.back(); }
  int64_t size(int64_t expert) const { return offsets[expert + 1] - offsets[expert]; }
};

}  // namespace plumbline

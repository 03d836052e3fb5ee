// The rows of a step as the experts see them: pairs of a row and one of its experts. They come in some order
// and are numbered expert by expert and, within one, in that order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace plumbline {

struct ExpertGroups {
  std::vector<int64_t> offsets;  // [experts + 1] the first pair of each expert
  std::vector<int32_t> rows;     // [pairs]
  std::vector<int32_t> slots;    // [pairs] the number of each as they came

  // Memory for as much as will ever be built.
  void Reserve(int64_t experts, int64_t pairs);
  // Pair i is of expert ids[i], in [0, experts), and of row row_of(i).
  template <typename RowOf>
  void Build(std::span<const int32_t> ids, int64_t experts, RowOf&& row_of) {
    Number(ids, experts);
    for (size_t i = 0; i < ids.size(); ++i)
      rows[slots[i]] = static_cast<int32_t>(row_of(static_cast<int64_t>(i)));
  }

  int64_t pairs() const { return offsets.back(); }
  int64_t size(int64_t expert) const { return offsets[expert + 1] - offsets[expert]; }

 private:
  void Number(std::span<const int32_t> ids, int64_t experts);
};

}  // namespace plumbline

// What writing and reading the integers of a panel (packed_format.h) share.
#pragma once

#include <cstdint>
#include <cstring>

#include "plumbline/kernels/gemm/packed_format.h"

namespace plumbline {

template <typename Word>
inline Word LoadWord(const uint8_t* p) {
  Word word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

template <typename Word>
inline void StoreWord(uint8_t* p, Word word) {
  std::memcpy(p, &word, sizeof word);
}

// In pair and in column order: the elements of a group that share words are `step` apart from `first` on;
// their word w is number width * w + at.
struct WordStream {
  int first;
  int step;
  int at;
  int width;
};

// Pair order has one for the odd and one for the even k of a column.
constexpr int WordStreams(PanelOrder order) { return order == PanelOrder::kPairs ? 2 : 1; }

constexpr WordStream WordStreamOf(PanelOrder order, int column, int index) {
  if (order == PanelOrder::kColumns) return {0, 1, column, kPanel};
  return {1 - index, 2, 16 * (column / 8) + column % 8 * 2 + index, 2 * kPanel};
}

}  // namespace plumbline

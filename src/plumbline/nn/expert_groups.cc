#include "plumbline/nn/expert_groups.h"

#include <algorithm>
#include <utility>

namespace plumbline {

void ExpertGroups::Reserve(int64_t experts, int64_t pairs) {
  offsets.reserve(experts + 1);
  rows.reserve(pairs);
  slots.reserve(pairs);
}

void ExpertGroups::Number(std::span<const int32_t> ids, int64_t experts) {
  offsets.assign(experts + 1, 0);
  for (const int32_t id : ids) ++offsets[id];
  int64_t next = 0;
  for (int64_t& offset : offsets) next += std::exchange(offset, next);
  rows.resize(next);
  slots.resize(next);
  // Counts each expert's first pair up to the next one's first, then shifts them back.
  for (size_t i = 0; i < ids.size(); ++i) slots[i] = static_cast<int32_t>(offsets[ids[i]]++);
  std::shift_right(offsets.begin(), offsets.end(), 1);
  offsets.front() = 0;
}

}  // namespace plumbline

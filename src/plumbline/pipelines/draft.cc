#include "plumbline/pipelines/draft.h"

#include <algorithm>

namespace plumbline {
namespace {

constexpr int64_t kLongestMatch = 3;

}  // namespace

void ProposeDrafts(std::span<const int32_t> tokens, int64_t limit, std::vector<int32_t>& drafts) {
  drafts.clear();
  const auto size = static_cast<int64_t>(tokens.size());
  if (limit <= 0) return;
  for (int64_t n = std::min(kLongestMatch, size - 1); n > 0; --n) {
    const auto last = tokens.last(n);
    for (int64_t begin = size - n - 1; begin >= 0; --begin) {
      if (!std::ranges::equal(tokens.subspan(begin, n), last)) continue;
      const auto followers = tokens.subspan(begin + n, std::min(limit, size - begin - n));
      drafts.assign(followers.begin(), followers.end());
      return;
    }
  }
}

}  // namespace plumbline

#include "plumbline/pipelines/kv_pages.h"

#include <algorithm>

namespace plumbline {

KvPagePool::KvPagePool(const KvPageGeometry& geometry, int64_t max_bytes)
    : geometry_(geometry),
      max_of_owner_(std::min<int64_t>(max_bytes / geometry.page_bytes / geometry.owners,
                                      UINT32_MAX / geometry.owners - 2)),
      owners_(geometry.owners) {}

// Pages [first, first + count) that fall to `owner`.
int64_t KvPagePool::Wanted(int owner, int64_t first, int64_t count) const {
  const auto below = [&](int64_t end) { return (end + owners() - 1 - owner) / owners(); };
  return below(first + count) - below(first);
}

bool KvPagePool::Fits(int64_t first, int64_t count) const {
  for (int owner = 0; owner < owners(); ++owner) {
    if (owners_[owner].used + Wanted(owner, first, count) > max_of_owner_) return false;
  }
  return true;
}

bool KvPagePool::Acquire(int64_t count, std::vector<uint32_t>& pages) {
  if (!Fits(static_cast<int64_t>(pages.size()), count)) return false;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t index = static_cast<uint32_t>(pages.size() % owners());
    Owner& owner = owners_[index];
    if (owner.free.empty()) {
      pages.push_back(owner.next++ * owners() + index);
    } else {
      pages.push_back(owner.free.back());
      owner.free.pop_back();
    }
    ++owner.used;
  }
  pages_in_use_ += count;
  return true;
}

void KvPagePool::Release(std::vector<uint32_t>& pages) {
  for (auto page = pages.rbegin(); page != pages.rend(); ++page) Release(*page);
  pages.clear();
}

void KvPagePool::Release(uint32_t page) {
  Owner& owner = owners_[page % owners()];
  owner.free.push_back(page);
  --owner.used;
  --pages_in_use_;
}

}  // namespace plumbline

#include "plumbline/pipelines/kv_pages.h"

#include <algorithm>

namespace plumbline {
namespace {

// Pages come from the system in slabs of about this size: few enough mappings, little memory reserved unused.
constexpr int64_t kSlabBytes = int64_t{16} << 20;

}  // namespace

KvPagePool::KvPagePool(const KvLayout& layout, int64_t max_bytes)
    : layout_(layout), page_bytes_(layout.PageBytes()), max_pages_(max_bytes / page_bytes_) {}

Result<bool> KvPagePool::Acquire(int64_t count, std::vector<void*>& pages) {
  if (pages_in_use_ + count > max_pages_) return false;
  while (static_cast<int64_t>(free_.size()) < count) {
    const int64_t owned = pages_in_use_ + static_cast<int64_t>(free_.size());
    const int64_t slab_pages = std::clamp<int64_t>(kSlabBytes / page_bytes_, 1, max_pages_ - owned);
    ASSIGN_OR_RETURN(Buffer slab, Buffer::Allocate(slab_pages * page_bytes_));
    // Handed out from the back: lower addresses first.
    for (int64_t i = slab_pages - 1; i >= 0; --i)
      free_.push_back(static_cast<char*>(slab.data()) + i * page_bytes_);
    slabs_.push_back(std::move(slab));
  }
  for (int64_t i = 0; i < count; ++i) {
    pages.push_back(free_.back());
    free_.pop_back();
  }
  pages_in_use_ += count;
  return true;
}

void KvPagePool::Release(std::vector<void*>& pages) {
  for (auto page = pages.rbegin(); page != pages.rend(); ++page) Release(*page);
  pages.clear();
}

void KvPagePool::Release(void* page) {
  --pages_in_use_;
  free_.push_back(page);
}

}  // namespace plumbline

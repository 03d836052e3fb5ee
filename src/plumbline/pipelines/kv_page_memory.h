// The memory of the KV pages that one rank holds a part of, by id (kv_pages.h).
#pragma once

#include <cstdint>

#include "plumbline/base/status.h"
#include "plumbline/kernels/attention/kv_layout.h"
#include "plumbline/tensor/buffer.h"

namespace plumbline {

class KvPageMemory {
 public:
  // Pages with ids below `total_pages`, of which those with id % owners == owner are here. Address space is
  // reserved for all; memory comes as pages are written.
  static Result<KvPageMemory> Reserve(const KvLayout& layout, int64_t total_pages, int owner, int owners);

  const KvLayout& layout() const { return layout_; }
  int64_t total_pages() const { return total_pages_; }
  void* data() { return buffer_.data(); }

  // Where page `id` lies; null for a page of another rank.
  void* Page(uint32_t id) {
    if (static_cast<int>(id % owners_) != owner_) return nullptr;
    return static_cast<char*>(buffer_.data()) + id * page_bytes_;
  }

 private:
  KvLayout layout_;
  int64_t page_bytes_ = 0;
  int64_t total_pages_ = 0;
  int owner_ = 0;
  int owners_ = 1;
  Buffer buffer_;
};

}  // namespace plumbline

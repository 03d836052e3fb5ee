// The pages of the KV cache: fixed-size pieces of memory handed out to sequences and taken back.
#pragma once

#include <cstdint>
#include <vector>

#include "plumbline/kernels/attention/kv_layout.h"
#include "plumbline/tensor/buffer.h"

namespace plumbline {

class KvPagePool {
 public:
  // Never holds more than max_bytes.
  KvPagePool(const KvLayout& layout, int64_t max_bytes);

  const KvLayout& layout() const { return layout_; }
  int64_t PagesFor(int64_t tokens) const { return (tokens + layout_.page_size - 1) / layout_.page_size; }
  int64_t max_pages() const { return max_pages_; }
  int64_t pages_in_use() const { return pages_in_use_; }
  int64_t page_bytes() const { return page_bytes_; }

  // `count` pages appended to `pages`, or none and false where the pool has not that many free. Memory comes
  // from the system as it is first needed; a refusal by the system is an error.
  Result<bool> Acquire(int64_t count, std::vector<void*>& pages);
  void Release(std::vector<void*>& pages);  // empties `pages`
  void Release(void* page);

 private:
  KvLayout layout_;
  int64_t page_bytes_;
  int64_t max_pages_;
  int64_t pages_in_use_ = 0;
  std::vector<Buffer> slabs_;
  std::vector<void*> free_;
};

}  // namespace plumbline

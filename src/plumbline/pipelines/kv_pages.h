// The ids of the pages of one replica's KV cache, handed out to sequences and taken back. The memory is on
// the ranks (kv_page_memory.h): page i of every sequence lies on context-parallel rank i mod owners, which an
// id tells too.
#pragma once

#include <cstdint>
#include <vector>

#include "plumbline/base/status.h"

namespace plumbline {

struct KvPageGeometry {
  int64_t page_size = 64;  // tokens
  int64_t page_bytes = 0;  // of one page on all ranks that hold a part of it
  int owners = 1;          // ranks that pages are dealt out to
};

class KvPagePool {
 public:
  // Never hands out more than max_bytes.
  KvPagePool(const KvPageGeometry& geometry, int64_t max_bytes);

  int64_t page_size() const { return geometry_.page_size; }
  int64_t page_bytes() const { return geometry_.page_bytes; }
  int owners() const { return geometry_.owners; }
  int64_t PagesFor(int64_t tokens) const { return (tokens + page_size() - 1) / page_size(); }
  int64_t pages_in_use() const { return pages_in_use_; }
  // Pages of the longest sequence that fits an empty pool.
  int64_t max_pages() const { return max_of_owner_ * owners(); }
  // Ids are below it, and never 0, which is nobody's page.
  int64_t end_id() const { return (max_of_owner_ + 1) * owners(); }

  // Whether pages first, first + 1, ..., of a sequence, `count` of them, are free.
  bool Fits(int64_t first, int64_t count) const;
  // Appends them to `pages`, or none and false.
  bool Acquire(int64_t count, std::vector<uint32_t>& pages);
  void Release(std::vector<uint32_t>& pages);  // empties `pages`
  void Release(uint32_t page);

 private:
  struct Owner {
    std::vector<uint32_t> free;  // given back
    int64_t used = 0;            // in use
    uint32_t next = 1;           // slot that was never handed out
  };
  int64_t Wanted(int owner, int64_t first, int64_t count) const;

  KvPageGeometry geometry_;
  int64_t max_of_owner_;
  int64_t pages_in_use_ = 0;
  std::vector<Owner> owners_;
};

}  // namespace plumbline

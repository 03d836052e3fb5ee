#include "plumbline/tensor/buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include "plumbline/base/check.h"
#include "plumbline/tensor/huge_page.h"

namespace plumbline {
namespace {

// Of a mapping of a huge page more than `bytes`, those that begin at a huge page; the rest goes back.
void* AlignMapping(char* data, int64_t bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t before = -reinterpret_cast<intptr_t>(data) & (kHugePage - 1);
  const int64_t whole = (bytes + page - 1) / page * page;
  if (before > 0) munmap(data, before);
  if (before + whole < bytes + kHugePage) munmap(data + before + whole, bytes + kHugePage - before - whole);
  return data + before;
}

}  // namespace

Result<Buffer> Buffer::Map(int64_t bytes, int flags, bool huge_pages) {
  PLUMBLINE_CHECK(bytes >= 0);
  Buffer buffer;
  if (bytes == 0) return buffer;
  // Huge pages lie at multiples of their size.
  const bool aligned = huge_pages && bytes >= kHugePage;
  const int64_t mapped = aligned ? bytes + kHugePage : bytes;
  void* data = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (data == MAP_FAILED) return Failed("memory: got no {} bytes from the system", bytes);
  if (aligned) data = AlignMapping(static_cast<char*>(data), bytes);
  // Advice only: a refusal changes nothing.
  if (bytes >= kHugePage) madvise(data, bytes, huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  buffer.data_ = data;
  buffer.bytes_ = bytes;
  return buffer;
}

Result<Buffer> Buffer::Allocate(int64_t bytes) { return Map(bytes, 0, /*huge_pages=*/true); }

Result<Buffer> Buffer::Reserve(int64_t bytes, bool huge_pages) {
  return Map(bytes, MAP_NORESERVE, huge_pages);
}

void Buffer::Release() {
  if (data_ != nullptr && whole_ == nullptr) munmap(data_, bytes_);
  whole_.reset();
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace plumbline

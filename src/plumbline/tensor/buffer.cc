#include "plumbline/tensor/buffer.h"

#include <sys/mman.h>

#include "plumbline/base/check.h"

namespace plumbline {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

}  // namespace

Result<Buffer> Buffer::Map(int64_t bytes, int flags, bool huge_pages) {
  PLUMBLINE_CHECK(bytes >= 0);
  Buffer buffer;
  if (bytes == 0) return buffer;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (data == MAP_FAILED) return Failed("memory: got no {} bytes from the system", bytes);
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
  if (data_ != nullptr) munmap(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace plumbline

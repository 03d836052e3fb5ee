#include "plumbline/tensor/buffer.h"

#include <sys/mman.h>

#include "plumbline/base/check.h"

namespace plumbline {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

}  // namespace

Result<Buffer> Buffer::Allocate(int64_t bytes) {
  PLUMBLINE_CHECK(bytes >= 0);
  Buffer buffer;
  if (bytes == 0) return buffer;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return Failed("memory: got no {} bytes from the system", bytes);
  if (bytes >= kHugePage) madvise(data, bytes, MADV_HUGEPAGE);  // advice only: a refusal changes nothing
  buffer.data_ = data;
  buffer.bytes_ = bytes;
  return buffer;
}

void Buffer::Release() {
  if (data_ != nullptr) munmap(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace plumbline

#include "plumbline/tensor/buffer_arena.h"

#include <utility>

namespace plumbline {
namespace {

constexpr int64_t kChunk = int64_t{32} << 20;
constexpr int64_t kLargest = kChunk / 8;  // slice: what a full chunk leaves unused is below it

}  // namespace

Result<Buffer> BufferArena::Allocate(int64_t bytes) {
  if (bytes <= 0 || bytes > kLargest) return Buffer::Allocate(bytes);
  if (chunk_ == nullptr || used_ + bytes > chunk_->bytes()) {
    ASSIGN_OR_RETURN(Buffer chunk, Buffer::Allocate(kChunk));
    chunk_ = std::make_shared<Buffer>(std::move(chunk));
    used_ = 0;
  }
  Buffer slice(chunk_, used_, bytes);
  used_ += (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
  return slice;
}

}  // namespace plumbline

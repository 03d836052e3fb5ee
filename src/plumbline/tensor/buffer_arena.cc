#include "plumbline/tensor/buffer_arena.h"

#include <algorithm>
#include <utility>

namespace plumbline {
namespace {

constexpr int64_t kChunk = int64_t{32} << 20;
constexpr int64_t kLargest = kChunk / 8;  // slice

}  // namespace

Result<Buffer> BufferArena::Allocate(int64_t bytes) {
  if (bytes <= 0 || bytes > kLargest) return Buffer::Allocate(bytes);
  // First fit: smaller slices fill what larger ones left of the chunks before.
  auto chunk = std::find_if(chunks_.begin(), chunks_.end(),
                            [&](const Chunk& c) { return c.used + bytes <= c.memory->bytes(); });
  if (chunk == chunks_.end()) {
    ASSIGN_OR_RETURN(Buffer memory, Buffer::Allocate(kChunk));
    chunk = chunks_.insert(chunks_.end(), {std::make_shared<Buffer>(std::move(memory)), 0});
  }
  Buffer slice(chunk->memory, chunk->used, bytes);
  chunk->used += (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
  return slice;
}

}  // namespace plumbline

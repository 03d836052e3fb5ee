// Buffers that share huge pages: slices of large chunks, for many that are each smaller than such a page: the
// weights of a small model.
#pragma once

#include <cstdint>
#include <memory>

#include "plumbline/tensor/buffer.h"

namespace plumbline {

class BufferArena {
 public:
  // As Buffer::Allocate. A slice outlives the arena; a chunk goes back to the system with the last of its
  // slices. What is not small beside a chunk is a mapping of its own.
  Result<Buffer> Allocate(int64_t bytes);

 private:
  std::shared_ptr<Buffer> chunk_;
  int64_t used_ = 0;  // of chunk_
};

}  // namespace plumbline

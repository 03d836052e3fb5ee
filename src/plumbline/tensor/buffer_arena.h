// Buffers that share huge pages: slices of large chunks, for many that are each smaller than such a page: the
// weights of a small model.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "plumbline/tensor/buffer.h"

namespace plumbline {

class BufferArena {
 public:
  // As Buffer::Allocate. A slice outlives the arena; once the arena is gone a chunk goes back to the system
  // with the last of its slices. What is not small beside a chunk is a mapping of its own.
  Result<Buffer> Allocate(int64_t bytes);

 private:
  struct Chunk {
    std::shared_ptr<Buffer> memory;
    int64_t used;
  };
  std::vector<Chunk> chunks_;
};

}  // namespace plumbline

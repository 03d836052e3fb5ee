// Scratch memory that one thread keeps between calls: it grows to the largest size asked for and is never
// given back before the thread ends.
#pragma once

#include <cstdint>

#include "plumbline/base/check.h"
#include "plumbline/tensor/buffer.h"

namespace plumbline {

class ThreadScratch {
 public:
  // `count` floats, 64-byte aligned, with whatever the last user left in them.
  float* Floats(int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
    if (buffer_.bytes() < bytes) {
      Result<Buffer> larger = Buffer::Allocate(bytes);
      PLUMBLINE_CHECK(larger.has_value());
      buffer_ = std::move(larger).value();
    }
    return static_cast<float*>(buffer_.data());
  }

 private:
  Buffer buffer_;
};

}  // namespace plumbline

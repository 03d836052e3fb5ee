// A buffer that is reused from step to step and grows to the largest size asked for.
#pragma once

#include <span>

#include "plumbline/tensor/buffer.h"

namespace plumbline {

class GrowBuffer {
 public:
  // At least `count` elements; what was there is lost where it grows.
  template <typename T>
  Result<std::span<T>> Get(int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    if (buffer_.bytes() < bytes) {
      ASSIGN_OR_RETURN(buffer_, Buffer::Allocate(bytes));
    }
    return std::span<T>(static_cast<T*>(buffer_.data()), static_cast<size_t>(count));
  }
  int64_t bytes() const { return buffer_.bytes(); }

 private:
  Buffer buffer_;
};

}  // namespace plumbline

// Owned memory for tensors: anonymous, zeroed, 64-byte aligned, in transparent huge pages where large.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "plumbline/base/status.h"

namespace plumbline {

inline constexpr int64_t kBufferAlignment = 64;

class Buffer {
 public:
  Buffer() = default;
  ~Buffer() { Release(); }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        whole_(std::move(other.whole_)) {}
  // A part of another buffer, which lives as long as any of its parts.
  Buffer(std::shared_ptr<Buffer> whole, int64_t offset, int64_t bytes)
      : data_(static_cast<std::byte*>(whole->data_) + offset), bytes_(bytes), whole_(std::move(whole)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      Release();
      data_ = std::exchange(other.data_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
      whole_ = std::move(other.whole_);
    }
    return *this;
  }

  // Zero-filled. Pages are touched lazily by the operating system. Fails, with the number of bytes, where
  // the system has no memory.
  static Result<Buffer> Allocate(int64_t bytes);
  // The same for more than will ever be touched: address space without a promise of memory.
  static Result<Buffer> Reserve(int64_t bytes, bool huge_pages);

  void* data() { return data_; }
  const void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

  template <typename T>
  std::span<T> As() {
    return {static_cast<T*>(data_), static_cast<size_t>(bytes_) / sizeof(T)};
  }
  template <typename T>
  std::span<const T> As() const {
    return {static_cast<const T*>(data_), static_cast<size_t>(bytes_) / sizeof(T)};
  }

 private:
  static Result<Buffer> Map(int64_t bytes, int flags, bool huge_pages);
  void Release();
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  std::shared_ptr<Buffer> whole_;  // of which this is a part; null: a mapping of its own
};

}  // namespace plumbline

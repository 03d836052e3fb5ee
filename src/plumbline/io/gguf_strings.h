// An array of strings as it lies in a GGUF file: read in order, nothing copied. A vocabulary with its merges
// is a hundred thousand of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string_view>

namespace plumbline {

class GgufStrings {
 public:
  class Iterator {
   public:
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;

    Iterator() = default;
    Iterator(const uint8_t* next, size_t left) : next_(next), left_(left) {}
    std::string_view operator*() const {
      return {reinterpret_cast<const char*>(next_) + sizeof(uint64_t), Length()};
    }
    Iterator& operator++() {
      next_ += sizeof(uint64_t) + Length();
      --left_;
      return *this;
    }
    Iterator operator++(int) {
      const Iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const Iterator& other) const { return left_ == other.left_; }

   private:
    uint64_t Length() const {
      uint64_t length;
      std::memcpy(&length, next_, sizeof length);
      return length;
    }
    const uint8_t* next_ = nullptr;
    size_t left_ = 0;
  };

  GgufStrings() = default;
  // `data`: `size` strings, each a 64-bit length and that many bytes. They must be there, and outlive the
  // object.
  GgufStrings(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  size_t size() const { return size_; }
  Iterator begin() const { return {data_, size_}; }
  Iterator end() const { return {}; }

 private:
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

static_assert(std::forward_iterator<GgufStrings::Iterator>);

}  // namespace plumbline

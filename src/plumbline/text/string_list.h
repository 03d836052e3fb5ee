// Strings one after the other in one block: a vocabulary of short tokens, each of which would take 32 bytes
// and often an allocation as a std::string.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline {

// Together they are shorter than 4 GiB.
class StringList {
 public:
  void push_back(std::string_view string) {
    text_ += string;
    ends_.push_back(static_cast<uint32_t>(text_.size()));
  }
  // Once all are there.
  void shrink_to_fit() {
    text_.shrink_to_fit();
    ends_.shrink_to_fit();
  }
  size_t size() const { return ends_.size(); }
  // Valid until the list changes.
  std::string_view operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(text_).substr(begin, ends_[i] - begin);
  }

 private:
  std::string text_;
  std::vector<uint32_t> ends_;
};

}  // namespace plumbline

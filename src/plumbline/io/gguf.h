// GGUF v2 and v3, little-endian (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), read from
// memory. Every header field is checked: a file that passes has only tensors that lie inside it, do not
// overlap and have a supported type. Nested arrays, which no known model has, are refused.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "plumbline/base/status.h"
#include "plumbline/io/gguf_strings.h"
#include "plumbline/tensor/raw_tensor.h"

namespace plumbline {

struct GgufValue {
  // Integers of every width widen to int64_t, or to uint64_t where they are 2^63 or more; float32 to double.
  // Arrays hold elements of one kind; the bools of an array are the integers 0 and 1. Strings of an array
  // stay in the file.
  std::variant<int64_t, uint64_t, double, bool, std::string, std::vector<int64_t>, std::vector<double>,
               GgufStrings>
      value;
};

class GgufFile {
 public:
  // `bytes` must outlive the object; tensors and arrays of strings point into it. `where` names the file in
  // errors. Anything wrong with the file is one InvalidInput error.
  static Result<GgufFile> Parse(std::span<const uint8_t> bytes, std::string_view where);

  uint32_t version() const { return version_; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  // In the order of the file. Shapes are outermost first, the reverse of GGUF's own order.
  const std::vector<RawTensor>& tensors() const { return tensors_; }
  const RawTensor* FindTensor(std::string_view name) const;  // null if absent

  // Typed look-ups: absent or of another type is an error that names the key, except the *Or forms, where
  // absent gives the default and another type is still an error.
  Result<std::string> GetString(std::string_view key) const;
  Result<int64_t> GetInt(std::string_view key) const;
  Result<double> GetFloat(std::string_view key) const;
  Result<int64_t> GetIntOr(std::string_view key, int64_t otherwise) const;
  Result<double> GetFloatOr(std::string_view key, double otherwise) const;
  Result<bool> GetBoolOr(std::string_view key, bool otherwise) const;
  Result<std::string> GetStringOr(std::string_view key, std::string otherwise) const;
  Result<GgufStrings> GetStrings(std::string_view key) const;
  Result<std::vector<int64_t>> GetInts(std::string_view key) const;
  Result<std::vector<double>> GetFloats(std::string_view key) const;
  bool Has(std::string_view key) const { return metadata_.find(key) != metadata_.end(); }

 private:
  std::string where_;
  uint32_t version_ = 0;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<RawTensor> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
};

}  // namespace plumbline

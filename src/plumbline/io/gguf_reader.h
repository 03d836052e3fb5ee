// Reads little-endian fields of a GGUF header from memory, never past its end.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "plumbline/base/status.h"
#include "plumbline/io/gguf.h"

namespace plumbline {

class GgufReader {
 public:
  GgufReader(std::span<const uint8_t> bytes, std::string_view where) : bytes_(bytes), where_(where) {}

  size_t offset() const { return offset_; }
  const uint8_t* position() const { return bytes_.data() + offset_; }
  size_t remaining() const { return bytes_.size() - offset_; }

  // Names what is being read (a key, a tensor) in the errors that follow.
  void set_subject(std::string subject) { subject_ = std::move(subject); }

  // "subject field: got ..., want ... (where)".
  template <typename... Args>
  std::unexpected<Error> Fault(std::string_view field, fmt::format_string<Args...> format,
                               Args&&... args) const {
    return InvalidInput("{} {}: {} ({})", subject_, field, fmt::format(format, std::forward<Args>(args)...),
                        where_);
  }

  template <typename T>
  Result<T> Read(std::string_view field) {
    if (remaining() < sizeof(T)) {
      return Fault(field, "got the end of the file at byte {}, want {} more bytes", bytes_.size(), sizeof(T));
    }
    T value;
    std::memcpy(&value, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return value;
  }

  // A 64-bit length, then that many bytes. The view points into the file.
  Result<std::string_view> ReadString(std::string_view field);

 private:
  std::span<const uint8_t> bytes_;
  std::string_view where_;
  std::string subject_ = "GGUF";
  size_t offset_ = 0;
};

using GgufMetadata = std::map<std::string, GgufValue, std::less<>>;

// `count` keys with their values. Refuses unknown value types, nested arrays and duplicate keys.
Result<GgufMetadata> ReadGgufMetadata(GgufReader& reader, uint64_t count);

}  // namespace plumbline

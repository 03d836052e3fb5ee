// A file mapped read-only into memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "plumbline/base/status.h"

namespace plumbline {

class MappedFile {
 public:
  static Result<MappedFile> Open(const std::string& path);
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const uint8_t> bytes() const { return {data_, static_cast<size_t>(size_)}; }
  const std::string& path() const { return path_; }

  // Tells the system the pages are not needed now: they leave this process's resident memory.
  void DropPages() const;

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace plumbline

// A file mapped read-only into memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "plumbline/base/status.h"

namespace plumbline {

class MappedFile {
 public:
  // A missing, unreadable, empty or not regular file is an error. The file must not shrink while it is
  // mapped.
  static Result<MappedFile> Open(const std::string& path);
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  // Stays where it is when the object is moved.
  std::span<const uint8_t> bytes() const { return {data_, static_cast<size_t>(size_)}; }
  const std::string& path() const { return path_; }

  // Tells the system the pages are not needed now: they leave this process's resident memory, and come back
  // from the file when they are read. The second form drops the pages of bytes [begin, begin + size) alone;
  // begin is a multiple of 4096.
  void DropPages() const;
  void DropPages(int64_t begin, int64_t size) const;

 private:
  void Unmap();

  std::string path_;
  const uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace plumbline

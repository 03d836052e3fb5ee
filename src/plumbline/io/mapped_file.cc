#include "plumbline/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "plumbline/base/check.h"

namespace plumbline {
namespace {

std::string SystemMessage(int code) { return std::generic_category().message(code); }

Result<const uint8_t*> Map(int fd, int64_t size, const std::string& path) {
  void* data = mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) return Failed("mapping {} bytes: got {} ({})", size, SystemMessage(errno), path);
  return static_cast<const uint8_t*>(data);
}

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a named pipe must not wait for its writer; it has no effect on regular files.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return InvalidInput("file: got {}, want a readable file ({})", SystemMessage(errno), path);
  struct stat info {};
  Result<const uint8_t*> data = nullptr;
  if (fstat(fd, &info) != 0) {
    data = Failed("file: got {}, want its size ({})", SystemMessage(errno), path);
  } else if (S_ISDIR(info.st_mode)) {
    data = InvalidInput("file: got a directory, want a file ({})", path);
  } else if (!S_ISREG(info.st_mode)) {
    data = InvalidInput("file: got a device, pipe or socket, want a regular file ({})", path);
  } else if (info.st_size == 0) {
    data = InvalidInput("file: got 0 bytes, want a file that is not empty ({})", path);
  } else {
    data = Map(fd, info.st_size, path);
  }
  close(fd);
  if (!data.has_value()) return std::unexpected(std::move(data).error());
  MappedFile file;
  file.path_ = path;
  file.data_ = *data;
  file.size_ = info.st_size;
  return file;
}

MappedFile::~MappedFile() { Unmap(); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    Unmap();
    path_ = std::move(other.path_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void MappedFile::Unmap() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), static_cast<size_t>(size_));
}

void MappedFile::DropPages() const { DropPages(0, size_); }

void MappedFile::DropPages(int64_t begin, int64_t size) const {
  PLUMBLINE_CHECK(begin % 4096 == 0 && begin >= 0 && size >= 0 && begin <= size_ && size <= size_ - begin);
  // Advice only: where the system refuses it, the pages stay and nothing else changes.
  if (size > 0) madvise(const_cast<uint8_t*>(data_) + begin, static_cast<size_t>(size), MADV_DONTNEED);
}

}  // namespace plumbline

#include "plumbline/cli/output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace plumbline::cli {

Status Output::CheckWritable(const std::string& path) {
  if (path.empty()) return {};
  struct stat info;
  if (stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return InvalidInput("output: got a directory, want a file ({})", path);
    if (access(path.c_str(), W_OK) == 0) return {};
    return InvalidInput("output: got '{}', want a writable file ({})", std::strerror(errno), path);
  }
  std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (parent.empty()) parent = ".";
  if (access(parent.c_str(), W_OK | X_OK) == 0) return {};
  return InvalidInput("output: got '{}', want a folder to write in ({})", std::strerror(errno), path);
}

Result<std::unique_ptr<Output>> Output::OpenFile(const std::string& path) {
  auto output = std::make_unique<Output>();
  output->name_ = path;
  output->fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (output->fd_ < 0)
    return InvalidInput("output: got '{}', want a writable file ({})", std::strerror(errno), path);
  output->owned_ = true;
  // Two runs in one file would mix their records. A file system without locks is taken as it is.
  if (flock(output->fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return InvalidInput("output: got a file that another run writes, want one of its own ({})", path);
  return output;
}

Result<std::unique_ptr<Output>> Output::Open(const std::string& path) {
  if (path.empty()) {
    auto output = std::make_unique<Output>();
    output->name_ = "standard output";
    output->fd_ = STDOUT_FILENO;
    return output;
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Output> output, OpenFile(path));
  struct stat info;
  if (fstat(output->fd_, &info) == 0 && S_ISREG(info.st_mode)) RETURN_IF_ERROR(output->KeepFirst(0));
  return output;
}

Result<std::unique_ptr<Output>> Output::OpenToResume(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<Output> output, OpenFile(path));
  struct stat info;
  if (fstat(output->fd_, &info) != 0 || !S_ISREG(info.st_mode))
    return InvalidInput("--resume: got something else, want a regular file ({})", path);
  return output;
}

Status Output::KeepFirst(int64_t bytes) {
  if (ftruncate(fd_, bytes) != 0 || lseek(fd_, bytes, SEEK_SET) < 0)
    return Failed("output: got '{}', want the file cut to {} bytes ({})", std::strerror(errno), bytes, name_);
  good_bytes_ = bytes;
  return {};
}

Output::~Output() {
  if (owned_ && fd_ >= 0) close(fd_);
}

Status Output::Write(std::string_view record) {
  std::string_view left = record;
  while (!left.empty()) {
    const ssize_t written = write(fd_, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      if (owned_ && ftruncate(fd_, good_bytes_) == 0) lseek(fd_, good_bytes_, SEEK_SET);
      return Failed("output: got '{}', want {} more bytes written ({})", std::strerror(error), left.size(),
                    name_);
    }
    left.remove_prefix(static_cast<size_t>(written));
  }
  good_bytes_ += static_cast<int64_t>(record.size());
  return {};
}

Status Output::Close() {
  if (!owned_ || fd_ < 0) return {};
  const int fd = fd_;
  fd_ = -1;
  if (close(fd) != 0)
    return Failed("output: got '{}', want the file closed ({})", std::strerror(errno), name_);
  return {};
}

}  // namespace plumbline::cli

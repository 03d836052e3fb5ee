#include "plumbline/cli/output.h"

#include <fcntl.h>
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

Result<std::unique_ptr<Output>> Output::Open(const std::string& path) {
  auto output = std::make_unique<Output>();
  output->name_ = path.empty() ? "standard output" : path;
  output->fd_ = STDOUT_FILENO;
  if (path.empty()) return output;
  output->fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (output->fd_ < 0)
    return InvalidInput("output: got '{}', want a writable file ({})", std::strerror(errno), path);
  output->owned_ = true;
  return output;
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

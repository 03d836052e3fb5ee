#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <system_error>

#include "plumbline/base/check.h"
#include "plumbline/io/quote.h"
#include "plumbline/io/safetensors.h"
#include "plumbline/io/safetensors_header.h"

namespace plumbline {
namespace {

using Json = nlohmann::ordered_json;

std::string SystemMessage(int code) { return std::generic_category().message(code); }

bool IsUtf8(const std::string& text) {
  // Dropping the invalid bytes changes the text exactly where there are some.
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::ignore), nullptr, false) ==
         Json(text);
}

Result<int64_t> TensorBytes(const SafetensorsWriter::Tensor& tensor, const std::string& path) {
  if (!SafetensorsName(tensor.dtype).has_value()) {
    return InvalidInput("tensor {} dtype: got {}, want a plain type ({})", Quote(tensor.name),
                        Info(tensor.dtype).name, path);
  }
  int64_t bytes = Info(tensor.dtype).block_bytes;
  for (int64_t dim : tensor.shape) {
    if (dim < 0 || dim > std::numeric_limits<int64_t>::max() / std::max<int64_t>(bytes, 1)) {
      return InvalidInput(
          "tensor {} shape: got a dimension of {}, want 0 or more, and fewer than 2^63 bytes in all ({})",
          Quote(tensor.name), dim, path);
    }
    bytes *= dim;
  }
  return bytes;
}

Status CheckNames(const std::vector<SafetensorsWriter::Tensor>& tensors,
                  const std::map<std::string, std::string>& metadata, const std::string& path) {
  std::set<std::string_view> names;
  for (const SafetensorsWriter::Tensor& tensor : tensors) {
    if (tensor.name == "__metadata__" || !IsUtf8(tensor.name)) {
      return InvalidInput("tensor name: got {}, want UTF-8 other than __metadata__ ({})", Quote(tensor.name),
                          path);
    }
    if (!names.insert(tensor.name).second) {
      return InvalidInput("tensor name: got {} twice, want unique names ({})", Quote(tensor.name), path);
    }
  }
  for (const auto& [key, value] : metadata) {
    if (!IsUtf8(key) || !IsUtf8(value)) {
      return InvalidInput("metadata {}: got {}, want UTF-8 ({})", Quote(key), Quote(value), path);
    }
  }
  return {};
}

Status WriteAll(int fd, int64_t offset, std::span<const uint8_t> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("writing {} bytes: got {} ({})", bytes.size(), SystemMessage(errno), path);
    if (written == 0) return Failed("writing {} bytes: got 0 written, want all ({})", bytes.size(), path);
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += written;
  }
  return {};
}

// Opens a new file beside `path`. Its name is unique among this machine's processes and this process's
// writers.
Result<int> CreateTemporary(const std::string& path, std::string& temporary_path) {
  static std::atomic<uint64_t> counter{0};
  for (;;) {
    temporary_path = fmt::format("{}.{}-{}.tmp", path, getpid(), counter.fetch_add(1));
    const int fd = open(temporary_path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) return fd;
    const int code = errno;
    if (code != EEXIST && code != EINTR) {
      temporary_path.clear();
      return Failed("output file: got {}, want to create a file there ({})", SystemMessage(code), path);
    }
  }
}

}  // namespace

Result<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path, std::vector<Tensor> tensors,
    const std::map<std::string, std::string>& metadata) {
  RETURN_IF_ERROR(CheckNames(tensors, metadata, path));
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter());
  writer->path_ = path;
  writer->tensor_begin_.resize(tensors.size());
  for (const Tensor& tensor : tensors) {
    ASSIGN_OR_RETURN(const int64_t bytes, TensorBytes(tensor, path));
    writer->tensor_bytes_.push_back(bytes);
  }

  // Larger elements first: then every tensor is aligned to its elements without holes, which the format
  // forbids.
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return std::pair(-Info(tensors[i].dtype).block_bytes, i); });
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t end = 0;
  for (size_t i : order) {
    const int64_t bytes = writer->tensor_bytes_[i];
    if (bytes > std::numeric_limits<int64_t>::max() / 2 - end) {
      return InvalidInput("tensors: got 2^62 bytes or more, want fewer ({})", path);
    }
    writer->tensor_begin_[i] = end;
    header[tensors[i].name] = {{"dtype", *SafetensorsName(tensors[i].dtype)},
                               {"shape", tensors[i].shape},
                               {"data_offsets", {end, end + bytes}}};
    end += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  writer->data_begin_ = static_cast<int64_t>(sizeof length + length);
  text.insert(0, reinterpret_cast<const char*>(&length), sizeof length);

  ASSIGN_OR_RETURN(writer->fd_, CreateTemporary(path, writer->temporary_path_));
  if (ftruncate(writer->fd_, writer->data_begin_ + end) != 0) {
    return Failed("output file of {} bytes: got {} ({})", writer->data_begin_ + end, SystemMessage(errno),
                  path);
  }
  RETURN_IF_ERROR(
      WriteAll(writer->fd_, 0, {reinterpret_cast<const uint8_t*>(text.data()), text.size()}, path));
  return writer;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_path_.empty()) unlink(temporary_path_.c_str());
}

Status SafetensorsWriter::Write(size_t index, int64_t byte_offset, std::span<const uint8_t> bytes) {
  PLUMBLINE_CHECK(fd_ >= 0 && index < tensor_bytes_.size() && byte_offset >= 0);
  PLUMBLINE_CHECK(byte_offset <= tensor_bytes_[index]);
  PLUMBLINE_CHECK(bytes.size() <= static_cast<size_t>(tensor_bytes_[index] - byte_offset));
  return WriteAll(fd_, data_begin_ + tensor_begin_[index] + byte_offset, bytes, path_);
}

Status SafetensorsWriter::Close() {
  PLUMBLINE_CHECK(fd_ >= 0);
  // Some file systems find out that they are full only when the data must reach the disk.
  if (fsync(fd_) != 0) return Failed("writing to the disk: got {} ({})", SystemMessage(errno), path_);
  const int fd = std::exchange(fd_, -1);
  if (close(fd) != 0) return Failed("closing: got {} ({})", SystemMessage(errno), path_);
  if (rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    return Failed("renaming the finished file: got {} ({})", SystemMessage(errno), path_);
  }
  temporary_path_.clear();
  return {};
}

}  // namespace plumbline

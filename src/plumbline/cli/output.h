// Where results go: standard output or a file. Records are written whole or not at all.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "plumbline/base/status.h"

namespace plumbline::cli {

class Output {
 public:
  // Empty path: standard output. Checks, before any work, that the file could be written.
  static Status CheckWritable(const std::string& path);
  // An empty file. One that another run writes is refused.
  static Result<std::unique_ptr<Output>> Open(const std::string& path);
  // Keeps what the file holds, and creates it where there is none: KeepFirst says where to go on. Wants a
  // regular file.
  static Result<std::unique_ptr<Output>> OpenToResume(const std::string& path);
  ~Output();

  // Cuts the file after its first `bytes` bytes; records follow them.
  Status KeepFirst(int64_t bytes);

  // In one write, unless the system takes less: a process that is killed leaves at most one record cut short.
  // A write that fails (a full disk) takes the record back from a regular file and is an error.
  Status Write(std::string_view record);
  Status Close();

 private:
  static Result<std::unique_ptr<Output>> OpenFile(const std::string& path);

  std::string name_;
  int fd_ = -1;
  bool owned_ = false;
  int64_t good_bytes_ = 0;
};

}  // namespace plumbline::cli

// A one-line bar on standard error, drawn only where that is a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace plumbline::cli {

class Progress {
 public:
  Progress(std::string label, bool quiet);
  ~Progress();  // clears the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // At most ten times a second: bar, share, units a second, time left.
  void Update(int64_t done, int64_t total, std::string_view unit);
  void Clear();

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  bool enabled_;
  bool drawn_ = false;
  Clock::time_point begin_;
  Clock::time_point last_;
};

}  // namespace plumbline::cli

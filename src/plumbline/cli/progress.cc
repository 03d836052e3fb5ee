#include "plumbline/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace plumbline::cli {
namespace {

constexpr int kBarWidth = 30;
constexpr std::chrono::milliseconds kInterval(100);

}  // namespace

Progress::Progress(std::string label, bool quiet)
    : label_(std::move(label)),
      enabled_(!quiet && isatty(STDERR_FILENO) == 1),
      begin_(Clock::now()),
      last_(begin_) {}

Progress::~Progress() { Clear(); }

void Progress::Clear() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
  drawn_ = false;
}

void Progress::Update(int64_t done, int64_t total, std::string_view unit) {
  const Clock::time_point now = Clock::now();
  if (!enabled_ || now - last_ < kInterval) return;
  last_ = now;
  drawn_ = true;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const double share =
      total > 0 ? std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0) : 0.0;
  const int filled = static_cast<int>(share * kBarWidth);
  const double left = share > 0 ? seconds * (1 - share) / share : 0;
  fmt::print(stderr, "\r\033[K{} [{}{}] {:3.0f}%  {:.0f} {}/s  {:.0f} s left", label_,
             std::string(filled, '#'), std::string(kBarWidth - filled, '.'), share * 100,
             static_cast<double>(done) / seconds, unit, left);
  std::fflush(stderr);
}

}  // namespace plumbline::cli

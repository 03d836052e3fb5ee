// Ends a stream of text at the first stop string, which itself is not emitted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plumbline {

class StopStrings {
 public:
  // No stop string is empty.
  explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // What may be emitted now: text that can no longer be part of a stop string. Nothing once stopped.
  std::string Push(std::string_view text);
  // What was held back, at the end of the stream.
  std::string Flush();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace plumbline

// The input of `score -f`: one JSON object a line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plumbline/base/status.h"

namespace plumbline {

// {"id", "text"}, {"id", "tokens"} or {"id", "context", "continuation"}; exactly one of the three. Without an
// id a line goes by its number, counted from 0.
struct InputDocument {
  std::string id;
  std::string text;  // or the context
  std::optional<std::string> continuation;
  std::optional<std::vector<int32_t>> tokens;
};

// Blank lines are skipped. A line that is not such an object, has an unknown or missing field, or repeats an
// id is an error that names `where` and the line, counted from 1.
Result<std::vector<InputDocument>> ParseRequestLines(std::string_view text, std::string_view where);

}  // namespace plumbline

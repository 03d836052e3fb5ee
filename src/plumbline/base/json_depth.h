// How deep a JSON text nests, before a parser builds a tree of it.
#pragma once

#include <string_view>

namespace plumbline {

// More than `most` arrays and objects open at once. The text need not be well-formed.
inline bool JsonNestsDeeperThan(std::string_view json, int most) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > most) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace plumbline

// U+2581, which the SentencePiece family writes for a space.
#pragma once

#include <string>
#include <string_view>

namespace plumbline {

inline constexpr char32_t kSpaceMark = 0x2581;
inline constexpr std::string_view kSpaceMarkUtf8 = "\xE2\x96\x81";

// Appends `text` with every space as U+2581.
inline void AppendMarkingSpaces(std::string_view text, std::string& out) {
  out.reserve(out.size() + text.size() + text.size() / 2);
  for (const char c : text) {
    if (c == ' ') {
      out += kSpaceMarkUtf8;
    } else {
      out += c;
    }
  }
}

}  // namespace plumbline

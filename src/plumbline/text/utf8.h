// UTF-8 as the Unicode standard (table 3-7) and WHATWG read it: an ill-formed stretch is cut into maximal
// subparts, each of which stands for one U+FFFD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace plumbline {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;
inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

struct Utf8Char {
  enum class Kind : uint8_t { kValid, kIllFormed, kCutShort };  // cut short: more bytes could make it valid
  Kind kind = Kind::kValid;
  char32_t code = 0;   // U+FFFD unless valid
  uint32_t bytes = 0;  // consumed: the character, or the maximal subpart; at least 1
};

// The first character of a text of at least one byte.
Utf8Char DecodeUtf8(std::string_view text);

// The code point at `pos` of well-formed text; moves `pos` past it.
char32_t NextCodePoint(std::string_view text, size_t& pos);

// The last code point of well-formed text that is not empty.
char32_t LastCharacter(std::string_view text);

void AppendUtf8(char32_t code, std::string& out);

bool IsValidUtf8(std::string_view text);

// Appends `text` to `out`, each maximal ill-formed subpart as U+FFFD.
void AppendLossy(std::string_view text, std::string& out);

// How many bytes at the end of `text` begin a character that further bytes could complete: 0 to 3.
size_t Utf8CutShortTail(std::string_view text);

// Unicode's White_Space.
bool IsWhiteSpace(char32_t code);

}  // namespace plumbline

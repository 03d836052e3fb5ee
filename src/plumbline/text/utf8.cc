#include "plumbline/text/utf8.h"

#include <algorithm>
#include <cstring>

namespace plumbline {
namespace {

struct Lead {
  uint32_t bytes;     // of the whole character; 0: not a lead byte
  uint8_t low, high;  // what the second byte may be
  uint8_t payload_mask;
};

Lead ClassifyLead(uint8_t b) {
  if (b >= 0xC2 && b <= 0xDF) return {2, 0x80, 0xBF, 0x1F};
  if (b == 0xE0) return {3, 0xA0, 0xBF, 0x0F};
  if (b == 0xED) return {3, 0x80, 0x9F, 0x0F};
  if (b >= 0xE1 && b <= 0xEF) return {3, 0x80, 0xBF, 0x0F};
  if (b == 0xF0) return {4, 0x90, 0xBF, 0x07};
  if (b >= 0xF1 && b <= 0xF3) return {4, 0x80, 0xBF, 0x07};
  if (b == 0xF4) return {4, 0x80, 0x8F, 0x07};
  return {0, 0, 0, 0};
}

// The length of the run of ASCII at the start of `text`.
size_t AsciiRun(std::string_view text) {
  size_t n = 0;
  for (; n + 8 <= text.size(); n += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + n, 8);
    if (word & 0x8080808080808080u) break;
  }
  while (n < text.size() && static_cast<uint8_t>(text[n]) < 0x80) ++n;
  return n;
}

}  // namespace

Utf8Char DecodeUtf8(std::string_view text) {
  using Kind = Utf8Char::Kind;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (byte(0) < 0x80) return {Kind::kValid, byte(0), 1};
  const Lead lead = ClassifyLead(byte(0));
  if (lead.bytes == 0) return {Kind::kIllFormed, kReplacementCharacter, 1};
  char32_t code = byte(0) & lead.payload_mask;
  for (uint32_t i = 1; i < lead.bytes; ++i) {
    if (i == text.size()) return {Kind::kCutShort, kReplacementCharacter, i};
    const uint8_t low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xBF;
    if (byte(i) < low || byte(i) > high) return {Kind::kIllFormed, kReplacementCharacter, i};
    code = code << 6 | (byte(i) & 0x3F);
  }
  return {Kind::kValid, code, lead.bytes};
}

char32_t NextCodePoint(std::string_view text, size_t& pos) {
  const Utf8Char c = DecodeUtf8(text.substr(pos));
  pos += c.bytes;
  return c.code;
}

char32_t LastCharacter(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return NextCodePoint(text, begin);
}

void AppendUtf8(char32_t code, std::string& out) {
  const auto put = [&](char32_t value) { out.push_back(static_cast<char>(value)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6), put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 0x3F)), put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

bool IsValidUtf8(std::string_view text) {
  while (true) {
    text.remove_prefix(AsciiRun(text));
    if (text.empty()) return true;
    const Utf8Char c = DecodeUtf8(text);
    if (c.kind != Utf8Char::Kind::kValid) return false;
    text.remove_prefix(c.bytes);
  }
}

void AppendLossy(std::string_view text, std::string& out) {
  while (!text.empty()) {
    const size_t ascii = AsciiRun(text);
    out.append(text.substr(0, ascii));
    text.remove_prefix(ascii);
    if (text.empty()) return;
    const Utf8Char c = DecodeUtf8(text);
    out.append(c.kind == Utf8Char::Kind::kValid ? text.substr(0, c.bytes) : kReplacementUtf8);
    text.remove_prefix(c.bytes);
  }
}

size_t Utf8CutShortTail(std::string_view text) {
  for (size_t n = 1; n <= std::min<size_t>(3, text.size()); ++n) {
    const std::string_view tail = text.substr(text.size() - n);
    if ((static_cast<uint8_t>(tail[0]) & 0xC0) == 0x80) continue;
    const Utf8Char c = DecodeUtf8(tail);
    return c.kind == Utf8Char::Kind::kCutShort && c.bytes == n ? n : 0;
  }
  return 0;
}

bool IsWhiteSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

}  // namespace plumbline

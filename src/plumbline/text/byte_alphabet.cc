#include "plumbline/text/byte_alphabet.h"

#include "plumbline/text/utf8.h"

namespace plumbline {
namespace {

constexpr char32_t kLastCharacter = 0x143;  // 68 bytes are not printable

constexpr std::array<char32_t, 256> MakeByteCharacters() {
  std::array<char32_t, 256> characters{};
  char32_t next = 0x100;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    characters[b] = printable ? b : next++;
  }
  return characters;
}
constexpr std::array<char32_t, 256> kByteCharacters = MakeByteCharacters();

constexpr std::array<int16_t, kLastCharacter + 1> MakeCharacterBytes() {
  std::array<int16_t, kLastCharacter + 1> bytes{};
  for (int16_t& b : bytes) b = -1;
  for (int16_t b = 0; b < 256; ++b) bytes[kByteCharacters[static_cast<size_t>(b)]] = b;
  return bytes;
}
constexpr std::array<int16_t, kLastCharacter + 1> kCharacterBytes = MakeCharacterBytes();

}  // namespace

const std::array<char32_t, 256>& ByteCharacters() { return kByteCharacters; }

std::optional<std::string> BytesOfToken(std::string_view token) {
  std::string bytes;
  for (size_t pos = 0; pos < token.size();) {
    const char32_t c = NextCodePoint(token, pos);
    if (c > kLastCharacter || kCharacterBytes[c] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kCharacterBytes[c]));
  }
  return bytes;
}

}  // namespace plumbline

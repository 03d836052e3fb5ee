// The alphabet of byte-level BPE: each byte as a printable character. Bytes that are printable in Latin-1 are
// themselves; the others, ascending, are U+0100, U+0101, ...
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace plumbline {

// The character of each byte.
const std::array<char32_t, 256>& ByteCharacters();

// The bytes of a token spelled in the alphabet; nothing if a character of it is not in the alphabet.
std::optional<std::string> BytesOfToken(std::string_view token);

}  // namespace plumbline

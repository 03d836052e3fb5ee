// The regular expressions by which known tokenizers split text, as their tokenizer.json spells them.
#pragma once

#include <string_view>

namespace plumbline {

inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// The Digits pre-tokenizer, one digit a piece or one run: it knows digits of Unicode 17.
inline constexpr std::string_view kDigitPattern = R"([\p{N}\x{11de0}-\x{11de9}\x{16ff4}-\x{16ff6}])";
inline constexpr std::string_view kDigitsPattern = R"([\p{N}\x{11de0}-\x{11de9}\x{16ff4}-\x{16ff6}]+)";

}  // namespace plumbline

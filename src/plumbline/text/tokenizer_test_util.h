// Shared by the tests of this level: golden files, and the strings of tools/golden/tokenizer_strings.py.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "plumbline/text/tokenizer.h"
#include "plumbline/text/tokenizer_json.h"
#include "plumbline/text/utf8.h"

namespace plumbline::testing {

inline const std::vector<std::string>& TokenizerNames() {
  static const std::vector<std::string> names = {
      "gpt2",      "gpt2_prefix", "llama3",         "qwen2", "smollm",  "o200k",    "deepseek",
      "starcoder", "llama2",      "llama2_unknown", "gemma", "mistral", "metaspace"};
  return names;
}

inline std::string ReadCorpusFile(const std::string& name) {
  std::ifstream file(std::string(PLUMBLINE_SOURCE_DIR) + "/tests/corpus/tokenizer/" + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

inline nlohmann::json ReadCorpusJson(const std::string& name) {
  return nlohmann::json::parse(ReadCorpusFile(name));
}

inline std::unique_ptr<Tokenizer> LoadTokenizer(const std::string& name) {
  auto spec = ParseTokenizerJson(ReadCorpusFile(name + "/tokenizer.json"), name);
  EXPECT_TRUE(spec.has_value()) << spec.error().message;
  if (!spec.has_value()) return nullptr;
  auto tokenizer = Tokenizer::Create(*std::move(spec));
  EXPECT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  return tokenizer.has_value() ? *std::move(tokenizer) : nullptr;
}

inline std::string DecodeBase64(std::string_view text) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(kDigits.find(c));
    count += 6;
    if (count >= 8) out.push_back(static_cast<char>(bits >> (count -= 8)));
  }
  return out;
}

// The texts of corpus.json.
inline std::vector<std::string> CorpusTexts() {
  std::vector<std::string> texts;
  for (const auto& item : ReadCorpusJson("corpus.json")) {
    texts.push_back(item.contains("text") ? item["text"].get<std::string>()
                                          : DecodeBase64(item["base64"].get<std::string>()));
  }
  return texts;
}

class SplitMix {
 public:
  explicit SplitMix(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  }
  uint64_t Below(uint64_t n) { return Next() % n; }

 private:
  uint64_t state_;
};

struct CodeRange {
  char32_t first, last;
};
inline constexpr CodeRange kGeneratedRanges[] = {
    {0x20, 0x7E},       {0x61, 0x7A},       {0x61, 0x7A},     {0x20, 0x20},       {0x09, 0x0D},
    {0x30, 0x39},       {0x41, 0x5A},       {0x21, 0x2F},     {0x80, 0xFF},       {0x100, 0x24F},
    {0x300, 0x36F},     {0x370, 0x3FF},     {0x400, 0x4FF},   {0x590, 0x5FF},     {0x600, 0x6FF},
    {0x900, 0x97F},     {0xE00, 0xE7F},     {0x1100, 0x11FF}, {0x1E00, 0x1FFF},   {0x2000, 0x206F},
    {0x2150, 0x218F},   {0x2190, 0x2BFF},   {0x2581, 0x2581}, {0x3000, 0x30FF},   {0x4E00, 0x9FFF},
    {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE00, 0xFEFF}, {0x1D165, 0x1D1BB}, {0x1F1E6, 0x1F1FF},
    {0x1F300, 0x1FAFF}, {0x20000, 0x323AF}, {0, 0x10FFFF},
};
inline constexpr std::string_view kGeneratedFragments[] = {
    "the",
    " the",
    "ing",
    " return",
    "'s",
    "'LL",
    "'\u017f",
    " statement",
    "\r\n",
    "\n\n",
    "    ",
    "<|im_start|>",
    "<|im_end|> ",
    " <|left|>",
    "<|right|>  ",
    "  <|both|>\t",
    "<|word|>",
    " Plumb ",
    "\t\t",
    "cafe\u0301",
    "caf\u00e9",
    "na\u00efve",
    "<s>",
    "</s>",
    "<0x41>",
    "\u200d",
    "\ufe0f",
    "12345",
    "\u30ef\u30fc\u30c9",
    "<|norm|>",
    "a b",
    "[INST]",
};

inline std::string GeneratedString(uint64_t index) {
  SplitMix rng(index);
  const uint64_t kind = rng.Below(16);
  std::string out;
  if (kind == 0) {
    for (uint64_t n = 1 + rng.Below(40); n > 0; --n) out.push_back(static_cast<char>(rng.Below(256)));
    return out;
  }
  uint64_t length = 1 + rng.Below(kind == 1 ? 400 : 40);
  std::vector<uint64_t> chosen(1 + rng.Below(6));
  for (uint64_t& range : chosen) range = rng.Below(std::size(kGeneratedRanges));
  for (; length > 0; --length) {
    if (rng.Below(10) == 0) {
      out += kGeneratedFragments[rng.Below(std::size(kGeneratedFragments))];
      continue;
    }
    const auto [first, last] = kGeneratedRanges[chosen[rng.Below(chosen.size())]];
    char32_t code = first + static_cast<char32_t>(rng.Below(last - first + 1));
    if (code >= 0xD800 && code < 0xE000) code = kReplacementCharacter;
    const uint64_t repeat = 1 + (rng.Below(20) == 0 ? rng.Below(30) : 0);
    for (uint64_t i = 0; i < repeat; ++i) AppendUtf8(code, out);
  }
  if (kind == 2) out.resize(rng.Below(out.size()));
  return out;
}

}  // namespace plumbline::testing

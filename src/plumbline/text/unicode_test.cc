// Every code point, against Hugging Face `tokenizers`: see tools/golden/make_text_classes.py.
#include <string>

#include "plumbline/base/sha256.h"
#include "plumbline/text/nfc.h"
#include "plumbline/text/pretokenizer_patterns.h"
#include "plumbline/text/regex_splitter.h"
#include "plumbline/text/tokenizer_test_util.h"
#include "plumbline/text/word_character.h"

namespace plumbline {
namespace {

// SHA-256 of what `make` returns for each code point.
template <typename Make>
std::string Digest(Make make) {
  Sha256 hash;
  std::string character;
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code == 0xD800) code = 0xE000;
    character.clear();
    AppendUtf8(code, character);
    const std::string out = make(code, character);
    hash.Update(out.data(), out.size());
  }
  return hash.HexDigest();
}

std::string DigestOfMatches(std::string_view pattern) {
  const auto splitter = RegexSplitter::Compile(pattern);
  if (!splitter.has_value()) return splitter.error().message;
  RegexSplitter::Scratch scratch(*splitter);
  return Digest([&](char32_t, const std::string& character) {
    return splitter->Finds(character, scratch) ? character : std::string();
  });
}

TEST(SlowUnicode, PatternsMatchTheSameCharacters) {
  const auto golden = testing::ReadCorpusJson("unicode.json");
  ASSERT_FALSE(golden["patterns"].empty());
  for (const auto& item : golden["patterns"]) {
    const auto pattern = item["pattern"].get<std::string>();
    EXPECT_EQ(DigestOfMatches(pattern), item["digest"].get<std::string>()) << pattern;
  }
}

TEST(SlowUnicode, DigitsAreTheSame) {
  EXPECT_EQ(DigestOfMatches(kDigitPattern),
            testing::ReadCorpusJson("unicode.json")["digits"].get<std::string>());
}

TEST(SlowUnicode, WordCharactersAreTheSame) {
  const std::string digest = Digest([](char32_t code, const std::string& character) {
    return IsWordCharacter(code) ? character : std::string();
  });
  EXPECT_EQ(digest, testing::ReadCorpusJson("unicode.json")["word_characters"].get<std::string>());
}

TEST(SlowUnicode, NfcIsTheSame) {
  const auto golden = testing::ReadCorpusJson("unicode.json");
  ASSERT_FALSE(golden["nfc"].empty());
  for (const auto& item : golden["nfc"]) {
    const auto before = item["before"].get<std::string>(), after = item["after"].get<std::string>();
    const std::string digest = Digest(
        [&](char32_t, const std::string& character) { return NormalizeNfc(before + character + after); });
    EXPECT_EQ(digest, item["digest"].get<std::string>()) << before << "." << after;
  }
}

}  // namespace
}  // namespace plumbline

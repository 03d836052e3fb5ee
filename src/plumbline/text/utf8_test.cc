#include "plumbline/text/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plumbline/text/byte_alphabet.h"

namespace plumbline {
namespace {

std::string Lossy(std::string_view text) {
  std::string out;
  AppendLossy(text, out);
  return out;
}

TEST(Utf8, ReadsBackEveryCodePoint) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code == 0xD800) code = 0xE000;
    std::string text;
    AppendUtf8(code, text);
    const Utf8Char c = DecodeUtf8(text);
    ASSERT_EQ(c.kind, Utf8Char::Kind::kValid);
    ASSERT_EQ(c.code, code);
    ASSERT_EQ(c.bytes, text.size());
    ASSERT_EQ(LastCharacter("a" + text), code);
    for (size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_EQ(Utf8CutShortTail(text.substr(0, cut)), cut);
      ASSERT_EQ(DecodeUtf8(text.substr(0, cut)).kind, Utf8Char::Kind::kCutShort);
    }
    ASSERT_EQ(Utf8CutShortTail(text), 0u);
  }
}

TEST(Utf8, ReplacesMaximalSubparts) {
  const std::string r(kReplacementUtf8);
  // The examples of the Unicode standard, section 3.9, tables 3-8 to 3-11.
  EXPECT_EQ(Lossy("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(Lossy("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(Lossy("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(Lossy("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
}

TEST(Utf8, FindsWhatIsBroken) {
  EXPECT_TRUE(IsValidUtf8(""));
  EXPECT_TRUE(IsValidUtf8("plain text, long enough for words of eight"));
  EXPECT_TRUE(IsValidUtf8("\u00e9\u4f60\U0001f600"));
  EXPECT_FALSE(IsValidUtf8("12345678\xC3"));
  EXPECT_FALSE(IsValidUtf8("\xED\xA0\x80"));
  EXPECT_EQ(Utf8CutShortTail("ab\xF0\x9F"), 2u);
  EXPECT_EQ(Utf8CutShortTail("ab\xFF"), 0u);
  EXPECT_EQ(Utf8CutShortTail("\xE0\x80"), 0u);
  EXPECT_EQ(Utf8CutShortTail("\x80\x80\x80\x80"), 0u);
}

TEST(ByteAlphabet, SpellsEachByte) {
  for (int b = 0; b < 256; ++b) {
    std::string token;
    AppendUtf8(ByteCharacters()[static_cast<size_t>(b)], token);
    EXPECT_EQ(BytesOfToken(token), std::string(1, static_cast<char>(b)));
  }
  EXPECT_EQ(BytesOfToken("\u0120the"), " the");
  EXPECT_EQ(BytesOfToken("a b"), std::nullopt);
  EXPECT_EQ(BytesOfToken("\u4f60"), std::nullopt);
  EXPECT_EQ(BytesOfToken("\xFF"), std::nullopt);
}

}  // namespace
}  // namespace plumbline

#include "plumbline/text/added_tokens.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "plumbline/text/word_character.h"

namespace plumbline {
namespace {

using std::literals::operator""sv;

// Sections as text: "[...]" for added tokens.
std::string Split(const std::vector<AddedTokenMatcher::Pattern>& patterns, std::string_view text) {
  std::vector<AddedTokenMatcher::Section> sections;
  AddedTokenMatcher(patterns).Split(text, sections);
  std::string out;
  for (const auto& section : sections) {
    const std::string part(text.substr(section.begin, section.end - section.begin));
    out += section.id < 0 ? part : fmt::format("[{}:{}]", section.id, part);
  }
  return out;
}

TEST(AddedTokens, LeftmostThenLongest) {
  const std::vector<AddedTokenMatcher::Pattern> patterns = {{"ab", 1}, {"abcd", 2}, {"bcde", 3}, {"ab", 4}};
  EXPECT_EQ(Split(patterns, "xabcdey"), "x[2:abcd]ey");
  EXPECT_EQ(Split(patterns, "abce"), "[1:ab]ce");
  EXPECT_EQ(Split(patterns, "ababcabcd"), "[1:ab][1:ab]c[2:abcd]");
  EXPECT_EQ(Split(patterns, ""), "");
  EXPECT_EQ(Split({}, "abc"), "abc");
  EXPECT_EQ(Split({{"", 1}}, "abc"), "abc");
}

TEST(AddedTokens, TakeSpacesAlong) {
  EXPECT_EQ(Split({{"<l>", 1, true, false}}, "a \n<l> b"), "a[1: \n<l>] b");
  EXPECT_EQ(Split({{"<r>", 1, false, true}}, "a <r>\u3000 b"), "a [1:<r>\u3000 ]b");
  EXPECT_EQ(Split({{"<l>", 1, true, false}, {"<r>", 2, false, true}}, "<r>  <l>"), "[2:<r>  ][1:<l>]");
  // A token of spaces after one that took them is found again.
  EXPECT_EQ(Split({{"<r>", 1, false, true}, {"  ", 2}}, "<r>   b"), "[1:<r>   ][2:  ] b");
}

TEST(AddedTokens, SingleWords) {
  const std::vector<AddedTokenMatcher::Pattern> patterns = {{"foo", 1, false, false, true}};
  EXPECT_EQ(Split(patterns, "foo foo. (foo) -foo"), "[1:foo] [1:foo]. ([1:foo]) -[1:foo]");
  EXPECT_EQ(Split(patterns, "afoo foo1 _foo foo\u00e9 foofoo"), "afoo foo1 _foo foo\u00e9 foofoo");
}

TEST(WordCharacter, IsWhatRustCallsSo) {
  for (const char32_t c : U"aZ0_\u00e9\u0301\u200d\u24d0\u2160\u4e00"sv) {
    EXPECT_TRUE(IsWordCharacter(c)) << static_cast<uint32_t>(c);
  }
  for (const char32_t c : U" -.\u00b2\u2581\U0001f600\ufffd"sv) {
    EXPECT_FALSE(IsWordCharacter(c)) << static_cast<uint32_t>(c);
  }
}

}  // namespace
}  // namespace plumbline

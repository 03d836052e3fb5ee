#include "plumbline/text/regex_splitter.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plumbline/text/pretokenizer_patterns.h"
#include "plumbline/text/regex_translate.h"
#include "plumbline/text/utf8.h"

namespace plumbline {
namespace {

using Pieces = std::vector<std::string>;

Pieces Split(std::string_view pattern, std::string_view text) {
  const auto splitter = RegexSplitter::Compile(pattern);
  EXPECT_TRUE(splitter.has_value()) << splitter.error().message;
  if (!splitter.has_value()) return {};
  RegexSplitter::Scratch scratch(*splitter);
  std::vector<std::string_view> pieces;
  splitter->Split(text, scratch, pieces);
  return Pieces(pieces.begin(), pieces.end());
}

TEST(RegexSplitter, KeepsMatchesAndWhatIsBetween) {
  EXPECT_EQ(Split("b+", "abbcb"), (Pieces{"a", "bb", "c", "b"}));
  EXPECT_EQ(Split("x", "abc"), (Pieces{"abc"}));
  EXPECT_EQ(Split("x", ""), Pieces{});
  EXPECT_EQ(Split(kGpt2Pattern, "I'm  here 42"), (Pieces{"I", "'m", " ", " here", " 42"}));
  EXPECT_EQ(Split(kLlama3Pattern, "x12345\n\n  y"), (Pieces{"x", "123", "45", "\n\n", " ", " y"}));
}

TEST(RegexSplitter, EmptyMatchesCutAndGoOn) {
  EXPECT_EQ(Split("b*", "abc"), (Pieces{"a", "b", "c"}));
  EXPECT_EQ(Split("", "a\u00e9"), (Pieces{"a", "\u00e9"}));
  EXPECT_EQ(Split("(?=b)", "abab"), (Pieces{"a", "ba", "b"}));
}

TEST(RegexSplitter, TranslatesClasses) {
  EXPECT_EQ(Split(R"(\s)", "a\u180eb\u2028c"), (Pieces{"a\u180eb", "\u2028", "c"}));
  EXPECT_EQ(Split(R"(\S+)", "a\u0085b"), (Pieces{"a", "\u0085", "b"}));
  EXPECT_EQ(Split(R"([^\S\n]+)", "a \nb"), (Pieces{"a", " ", "\nb"}));
  EXPECT_EQ(Split(R"(\d\D)", "12a"), (Pieces{"1", "2a"}));
  EXPECT_EQ(Split(R"(\p{L}+)", "1\U00010d4a\u1c891"), (Pieces{"1", "\U00010d4a\u1c89", "1"}));  // Unicode 16
  EXPECT_EQ(Split(R"(\P{L}+)", "a\U00010d4a."), (Pieces{"a\U00010d4a", "."}));
  EXPECT_EQ(Split(R"(\p{^L}+)", "a."), (Pieces{"a", "."}));
  EXPECT_EQ(Split(R"([\p{Han}]+)", "a\u4e00\U00031350b"), (Pieces{"a", "\u4e00\U00031350", "b"}));
  EXPECT_EQ(Split(R"(\u00e9|\x{e8}|\x41)", "x\u00e9\u00e8A"), (Pieces{"x", "\u00e9", "\u00e8", "A"}));
}

TEST(RegexSplitter, RefusesWhatPcreReadsInAnotherWay) {
  for (const char* pattern :
       {R"(\w)",        R"(\b)",    R"(\h)",     R"([a[b]])",    R"([[:alpha:]])", R"([a&&b])",  R"([]a])",
        R"(a{1,2}+)",   R"(a{,3})", R"(a{)",     R"((*ACCEPT))", R"((?m:a))",      R"((?<n>a))", R"(\1)",
        R"(\p{Greek})", R"(\p{C})", R"(\p{Mn})", R"(\pL)",       R"([\P{L}])",     R"(\x)",      R"(\xe9)",
        R"(\u12)",      R"(\Q)",    "\\",        "[a",           "(*UTF)a"}) {
    const auto splitter = RegexSplitter::Compile(pattern);
    ASSERT_FALSE(splitter.has_value()) << pattern;
    EXPECT_NE(splitter.error().message.find("regular expression: got "), std::string::npos);
  }
}

TEST(RegexSplitter, RefusesWhatDoesNotCompile) {
  EXPECT_FALSE(RegexSplitter::Compile("(a").has_value());
  EXPECT_FALSE(RegexSplitter::Compile("*").has_value());
  EXPECT_FALSE(RegexSplitter::Compile(std::string(300, '(') + std::string(300, ')')).has_value());
  EXPECT_FALSE(RegexSplitter::Compile(std::string(20000, 'a')).has_value());
}

TEST(RegexSplitter, BoundsBacktracking) {
  const std::string text = std::string(100, 'a') + "b";
  // Exponential: given up, all in one piece.
  EXPECT_EQ(Split("(a+)+c", text), (Pieces{text}));
  // Quadratic, but each start is cheap enough.
  EXPECT_EQ(Split("a+c", text), (Pieces{text}));
}

TEST(RegexSplitter, TakesLongTextsInItsStride) {
  const std::string spaces(1'000'000, ' ');
  EXPECT_EQ(Split(kLlama3Pattern, spaces + "x"), (Pieces{spaces.substr(1), " x"}));
  EXPECT_EQ(Split(kGpt2Pattern, std::string(1'000'000, 'a')).size(), 1u);
  // A group that repeats needs more than the stack the compiled code has.
  EXPECT_EQ(Split("(?:a|b)+", std::string(1'000'000, 'a')).size(), 1u);
}

}  // namespace
}  // namespace plumbline

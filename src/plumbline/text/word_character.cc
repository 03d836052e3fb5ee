#include "plumbline/text/word_character.h"

#include <string>

#include "plumbline/base/check.h"
#include "plumbline/text/regex_splitter.h"
#include "plumbline/text/utf8.h"

namespace plumbline {
namespace {

// Alphabetic beyond letters: the letter numbers, and the circled, squared and parenthesised letters.
constexpr std::string_view kWord =
    R"([\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}])";

}  // namespace

bool IsWordCharacter(char32_t code) {
  static const Result<RegexSplitter> word = RegexSplitter::Compile(kWord);
  PLUMBLINE_CHECK(word.has_value());
  std::string text;
  AppendUtf8(code, text);
  RegexSplitter::Scratch scratch(*word);
  return word->Finds(text, scratch);
}

}  // namespace plumbline

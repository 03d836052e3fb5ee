// What counts as a character of a word around an added token.
#pragma once

namespace plumbline {

// \w of the regular expressions of Rust: alphabetic characters, marks, decimal digits, connecting punctuation
// and the two joiners.
bool IsWordCharacter(char32_t code);

}  // namespace plumbline

// Regular expressions of tokenizer.json (Oniguruma, Ruby syntax) as PCRE2 expressions of the same meaning.
#pragma once

#include <string>
#include <string_view>

#include "plumbline/base/status.h"

namespace plumbline {

// Character classes come out spelled so that they hold the same characters as in `tokenizers` (Unicode 16,
// Ruby's \s). What has another meaning in PCRE2, or one that is not certain, is an error that names it: \w \b
// \h and other escapes, nested classes and &&, {..}+, {,n}, scripts other than Han, groups other than (?:
// (?i: (?= (?! (?<= (?<! (?>.
Result<std::string> TranslateRegex(std::string_view pattern);

}  // namespace plumbline

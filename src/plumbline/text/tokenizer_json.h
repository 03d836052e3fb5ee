// tokenizer.json of a Hugging Face checkpoint -> TokenizerSpec.
#pragma once

#include <string_view>

#include "plumbline/base/status.h"
#include "plumbline/text/tokenizer.h"

namespace plumbline {

// `where` names the file in errors. Models other than BPE, and normalisers, pre-tokenizers or post-processors
// this runtime does not know, are errors that name the component: a tokenizer that would give other ids is
// refused.
Result<TokenizerSpec> ParseTokenizerJson(std::string_view json, std::string_view where);

}  // namespace plumbline

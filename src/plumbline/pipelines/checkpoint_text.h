// The text side of a checkpoint: its tokenizer, its chat template and the ids that end a generation.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plumbline/io/checkpoint.h"
#include "plumbline/text/tokenizer.h"

namespace plumbline {

// From GGUF's tokenizer.ggml.* or a directory's tokenizer.json; null where the checkpoint brings none. One
// that cannot be reproduced, or whose vocabulary is larger than the model's, is refused.
Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const Checkpoint& checkpoint, int64_t model_vocab);

// From GGUF's EOS and EOT ids, or generation_config.json / config.json's eos_token_id.
Result<std::vector<int32_t>> LoadStopIds(const Checkpoint& checkpoint);

// The Jinja source, from GGUF's tokenizer.chat_template or tokenizer_config.json; absent where there is none.
Result<std::optional<std::string>> LoadChatTemplate(const Checkpoint& checkpoint);

}  // namespace plumbline

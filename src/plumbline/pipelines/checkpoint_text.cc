#include "plumbline/pipelines/checkpoint_text.h"

#include <utility>

#include "plumbline/text/tokenizer_json.h"

namespace plumbline {
namespace {

using PreTokenizer = TokenizerSpec::PreTokenizer;

// GGUF's tokenizer.ggml.pre -> how text is split.
constexpr std::pair<std::string_view, PreTokenizer> kPreTokenizers[] = {
    {"gpt-2", PreTokenizer::kGpt2},    {"gpt2", PreTokenizer::kGpt2},
    {"smollm", PreTokenizer::kSmolLm}, {"llama-bpe", PreTokenizer::kLlama3},
    {"llama3", PreTokenizer::kLlama3}, {"llama-v3", PreTokenizer::kLlama3},
    {"qwen2", PreTokenizer::kQwen2},   {"qwen3", PreTokenizer::kQwen2},
};

// GGUF's tokenizer.ggml.token_type.
constexpr int64_t kUnknown = 2, kControl = 3, kUserDefined = 4, kByte = 6;

Status ReadByteLevel(const GgufFile& gguf, TokenizerSpec& spec) {
  spec.model = TokenizerSpec::Model::kByteLevelBpe;
  ASSIGN_OR_RETURN(const std::string pre, gguf.GetStringOr("tokenizer.ggml.pre", "gpt-2"));
  bool known = false;
  for (const auto& [name, value] : kPreTokenizers) {
    if (name != pre) continue;
    spec.pre_tokenizer = value;
    known = true;
  }
  if (!known) {
    return InvalidInput("tokenizer.ggml.pre: got '{}', want gpt-2, smollm, llama-bpe or qwen2", pre);
  }
  spec.ignore_merges = spec.pre_tokenizer == PreTokenizer::kLlama3;
  spec.nfc = spec.pre_tokenizer == PreTokenizer::kQwen2;
  ASSIGN_OR_RETURN(const GgufStrings merges, gguf.GetStrings("tokenizer.ggml.merges"));
  spec.merges.reserve(merges.size());
  for (const std::string_view merge : merges) {
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos) {
      return InvalidInput("tokenizer.ggml.merges: got '{}', want two tokens separated by a space", merge);
    }
    spec.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  return {};
}

Status ReadSentencePiece(const GgufFile& gguf, std::span<const int64_t> types, TokenizerSpec& spec) {
  spec.model = TokenizerSpec::Model::kSpmBpe;
  spec.pre_tokenizer = PreTokenizer::kNone;
  spec.byte_fallback = true;
  spec.fuse_unk = true;
  ASSIGN_OR_RETURN(spec.add_prefix_space, gguf.GetBoolOr("tokenizer.ggml.add_space_prefix", true));
  ASSIGN_OR_RETURN(const std::vector<double> scores, gguf.GetFloats("tokenizer.ggml.scores"));
  if (scores.size() != spec.tokens.size()) {
    return InvalidInput("tokenizer.ggml.scores: got {} entries, want one for each of {} tokens",
                        scores.size(), spec.tokens.size());
  }
  for (double score : scores) spec.scores.push_back(static_cast<float>(score));
  spec.byte_tokens.assign(256, -1);
  for (size_t id = 0; id < types.size(); ++id) {
    const std::string& token = spec.tokens[id];
    unsigned value = 0;
    if (types[id] == kByte && std::sscanf(token.c_str(), "<0x%2X>", &value) == 1) {
      spec.byte_tokens[value & 0xff] = static_cast<int32_t>(id);
    }
    if (types[id] == kUnknown) spec.unk_id = static_cast<int32_t>(id);
  }
  return {};
}

Result<std::optional<int32_t>> TokenId(const GgufFile& gguf, std::string_view key, size_t vocab) {
  if (!gguf.Has(key)) return std::nullopt;
  ASSIGN_OR_RETURN(const int64_t id, gguf.GetInt(key));
  if (id < 0 || id >= static_cast<int64_t>(vocab)) {
    return InvalidInput("{}: got {}, want an id below the {} tokens", key, id, vocab);
  }
  return static_cast<int32_t>(id);
}

// A key that is absent means what the model's kind does by default.
Status ReadSpecialIds(const GgufFile& gguf, TokenizerSpec& spec) {
  const bool spm = spec.model == TokenizerSpec::Model::kSpmBpe;
  ASSIGN_OR_RETURN(const bool add_bos, gguf.GetBoolOr("tokenizer.ggml.add_bos_token",
                                                      spm || spec.pre_tokenizer == PreTokenizer::kLlama3));
  ASSIGN_OR_RETURN(const bool add_eos, gguf.GetBoolOr("tokenizer.ggml.add_eos_token", false));
  ASSIGN_OR_RETURN(const auto bos, TokenId(gguf, "tokenizer.ggml.bos_token_id", spec.tokens.size()));
  ASSIGN_OR_RETURN(const auto eos, TokenId(gguf, "tokenizer.ggml.eos_token_id", spec.tokens.size()));
  if (add_bos && bos) spec.prefix_ids.push_back(*bos);
  if (add_eos && eos) spec.suffix_ids.push_back(*eos);
  return {};
}

Result<TokenizerSpec> ReadGgufTokenizer(const GgufFile& gguf) {
  TokenizerSpec spec;
  ASSIGN_OR_RETURN(const std::string model, gguf.GetString("tokenizer.ggml.model"));
  ASSIGN_OR_RETURN(const GgufStrings tokens, gguf.GetStrings("tokenizer.ggml.tokens"));
  spec.tokens.reserve(tokens.size());
  for (const std::string_view token : tokens) spec.tokens.emplace_back(token);
  std::vector<int64_t> types(spec.tokens.size(), 1);
  if (gguf.Has("tokenizer.ggml.token_type")) {
    ASSIGN_OR_RETURN(types, gguf.GetInts("tokenizer.ggml.token_type"));
  }
  if (types.size() != spec.tokens.size()) {
    return InvalidInput("tokenizer.ggml.token_type: got {} entries, want one for each of {} tokens",
                        types.size(), spec.tokens.size());
  }
  if (model == "gpt2") {
    RETURN_IF_ERROR(ReadByteLevel(gguf, spec));
  } else if (model == "llama") {
    RETURN_IF_ERROR(ReadSentencePiece(gguf, types, spec));
  } else {
    return InvalidInput("tokenizer.ggml.model: got '{}', want gpt2 or llama", model);
  }
  for (size_t id = 0; id < types.size(); ++id) {
    const bool special = types[id] == kControl || (types[id] == kUnknown && model == "llama");
    if (special || types[id] == kUserDefined) {
      spec.added_tokens.push_back(
          {.id = static_cast<int32_t>(id), .content = spec.tokens[id], .special = special});
    }
  }
  RETURN_IF_ERROR(ReadSpecialIds(gguf, spec));
  return spec;
}

Result<nlohmann::json> ReadJsonCompanion(const Checkpoint& checkpoint, std::string_view name) {
  ASSIGN_OR_RETURN(const std::optional<std::string> text, checkpoint.ReadCompanion(name));
  if (!text) return nlohmann::json::object();
  nlohmann::json json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    return InvalidInput("{}: got no JSON object, want one ({})", name, checkpoint.path());
  return json;
}

// The error with the file it is about, where it does not name it yet.
template <typename T>
Result<T> InFile(Result<T> result, const std::string& file) {
  if (!result && !result.error().message.contains(file)) result.error().message += fmt::format(" ({})", file);
  return result;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const Checkpoint& checkpoint, int64_t model_vocab) {
  TokenizerSpec spec;
  std::string file = checkpoint.path();
  if (checkpoint.is_gguf()) {
    if (!checkpoint.gguf().Has("tokenizer.ggml.model")) return nullptr;
    ASSIGN_OR_RETURN(spec, InFile(ReadGgufTokenizer(checkpoint.gguf()), file));
  } else {
    file += "/tokenizer.json";
    ASSIGN_OR_RETURN(const std::optional<std::string> json, checkpoint.ReadCompanion("tokenizer.json"));
    if (!json) return nullptr;
    ASSIGN_OR_RETURN(spec, ParseTokenizerJson(*json, file));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, InFile(Tokenizer::Create(std::move(spec)), file));
  if (tokenizer->vocab_size() > model_vocab) {
    return InvalidInput("tokenizer: got {} tokens, want at most the model's vocabulary of {} ({})",
                        tokenizer->vocab_size(), model_vocab, checkpoint.path());
  }
  return tokenizer;
}

Result<std::vector<int32_t>> LoadStopIds(const Checkpoint& checkpoint) {
  std::vector<int32_t> ids;
  if (checkpoint.is_gguf()) {
    for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
      if (!checkpoint.gguf().Has(key)) continue;
      ASSIGN_OR_RETURN(const int64_t id, checkpoint.gguf().GetInt(key));
      ids.push_back(static_cast<int32_t>(id));
    }
    return ids;
  }
  ASSIGN_OR_RETURN(const nlohmann::json generation, ReadJsonCompanion(checkpoint, "generation_config.json"));
  const nlohmann::json& source = generation.contains("eos_token_id") ? generation : checkpoint.config();
  const auto eos = source.find("eos_token_id");
  if (eos == source.end() || eos->is_null()) return ids;
  const nlohmann::json list = eos->is_array() ? *eos : nlohmann::json::array({*eos});
  for (const nlohmann::json& id : list) {
    if (!id.is_number_integer()) {
      return InvalidInput("eos_token_id: got {}, want an id or a list of ids ({})", eos->dump(),
                          checkpoint.path());
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

Result<std::optional<std::string>> LoadChatTemplate(const Checkpoint& checkpoint) {
  if (checkpoint.is_gguf()) {
    if (!checkpoint.gguf().Has("tokenizer.chat_template")) return std::nullopt;
    return checkpoint.gguf().GetString("tokenizer.chat_template");
  }
  ASSIGN_OR_RETURN(std::optional<std::string> file, checkpoint.ReadCompanion("chat_template.jinja"));
  if (file) return file;
  ASSIGN_OR_RETURN(const nlohmann::json config, ReadJsonCompanion(checkpoint, "tokenizer_config.json"));
  const auto found = config.find("chat_template");
  if (found == config.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

}  // namespace plumbline

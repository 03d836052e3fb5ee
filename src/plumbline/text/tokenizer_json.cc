#include "plumbline/text/tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "plumbline/base/json_depth.h"
#include "plumbline/text/byte_alphabet.h"
#include "plumbline/text/tokenizer_json_parts.h"
#include "plumbline/text/utf8.h"

namespace plumbline {
namespace {

using Json = nlohmann::json;
using Spec = TokenizerSpec;

// Real files nest about eight deep.
constexpr int kMaxDepth = 64;

Status ParseVocab(const JsonFields& fields, Spec& spec) {
  const Json* vocab = fields.Find("vocab");
  if (vocab == nullptr || !vocab->is_object()) return fields.Wrong("no vocab", "one");
  // Some vocabularies have gaps, but a wild id must not decide how much memory is taken.
  const uint64_t limit = 4 * uint64_t{vocab->size()} + 65536;
  for (const auto& [token, id] : vocab->items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= limit) {
      return fields.Wrong(
          fmt::format("id {} of '{}'", id.dump(-1, ' ', true, Json::error_handler_t::replace), token),
          fmt::format("one below {}", limit));
    }
    const auto index = id.get<size_t>();
    if (index >= spec.tokens.size()) spec.tokens.resize(index + 1);
    if (!spec.tokens[index].empty()) {
      return fields.Wrong(fmt::format("id {} for '{}' and '{}'", index, spec.tokens[index], token),
                          "one token an id");
    }
    spec.tokens[index] = token;
  }
  return {};
}

Status ParseMerges(const JsonFields& fields, Spec& spec) {
  ASSIGN_OR_RETURN(const Json* merges, fields.Array("merges"));
  spec.merges.reserve(merges->size());
  for (const Json& merge : *merges) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      spec.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    const std::string line = merge.is_string() ? merge.get<std::string>() : "";
    if (line.starts_with("#version")) continue;
    const size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
      return fields.Wrong(fmt::format("merge {}", spec.merges.size()), "two tokens");
    }
    spec.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  return {};
}

// The id of each token of the model, by its text. The views are into spec.tokens.
std::unordered_map<std::string_view, int32_t> TokenIds(const Spec& spec) {
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (!spec.tokens[i].empty()) ids[spec.tokens[i]] = static_cast<int32_t>(i);
  }
  return ids;
}

Status ParseUnknown(const JsonFields& fields, const std::unordered_map<std::string_view, int32_t>& ids,
                    Spec& spec) {
  ASSIGN_OR_RETURN(const std::string unknown, fields.StringOr("unk_token", ""));
  if (unknown.empty()) return {};
  if (const auto it = ids.find(unknown); it != ids.end()) {
    spec.unk_id = it->second;
    return {};
  }
  // One that is no token does not matter where nothing is unknown.
  for (const char32_t c : ByteCharacters()) {
    std::string token;
    AppendUtf8(c, token);
    if (spec.model != Spec::Model::kByteLevelBpe || !ids.contains(token)) {
      return fields.Wrong("unk_token '" + unknown + "'", "a token of vocab");
    }
  }
  return {};
}

Status ParseModel(const Json& json, std::string_view where, Spec& spec) {
  const JsonFields fields(json, "model", where);
  ASSIGN_OR_RETURN(const std::string type, fields.StringOr("type", "BPE"));
  if (type != "BPE") return fields.Wrong(type, "BPE");
  const Json* dropout = fields.Find("dropout");
  if (dropout != nullptr && *dropout != 0.0) return fields.Wrong("dropout", "none");
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    ASSIGN_OR_RETURN(const std::string text, fields.StringOr(affix, ""));
    if (!text.empty()) return fields.Wrong(fmt::format("{} '{}'", affix, text), "none");
  }
  ASSIGN_OR_RETURN(spec.byte_fallback, fields.Bool("byte_fallback", false));
  ASSIGN_OR_RETURN(spec.fuse_unk, fields.Bool("fuse_unk", false));
  ASSIGN_OR_RETURN(spec.ignore_merges, fields.Bool("ignore_merges", false));
  RETURN_IF_ERROR(ParseVocab(fields, spec));
  RETURN_IF_ERROR(ParseMerges(fields, spec));
  return ParseUnknown(fields, TokenIds(spec), spec);
}

Result<Spec::AddedToken> ParseAddedToken(const Json& json, std::string_view where) {
  const JsonFields fields(json, "added_tokens", where);
  Spec::AddedToken token;
  ASSIGN_OR_RETURN(const int64_t id, fields.Int("id"));
  if (id < 0 || id > INT32_MAX) return fields.Wrong(fmt::format("id {}", id), "a token id");
  token.id = static_cast<int32_t>(id);
  ASSIGN_OR_RETURN(token.content, fields.String("content"));
  ASSIGN_OR_RETURN(token.special, fields.Bool("special", false));
  ASSIGN_OR_RETURN(token.lstrip, fields.Bool("lstrip", false));
  ASSIGN_OR_RETURN(token.rstrip, fields.Bool("rstrip", false));
  ASSIGN_OR_RETURN(token.single_word, fields.Bool("single_word", false));
  ASSIGN_OR_RETURN(token.normalized, fields.Bool("normalized", !token.special));
  return token;
}

// `tokenizers` gives an added token the id of the model's token of that name, or else the next free id,
// whatever the file says. A file that says something else would be read in two ways.
Status ParseAddedTokens(const Json& json, size_t vocab_entries, std::string_view where, Spec& spec) {
  if (json.is_null()) return {};
  const JsonFields fields(json, "added_tokens", where);
  if (!json.is_array()) return fields.Wrong("no list", "one");
  const std::unordered_map<std::string_view, int32_t> model_ids = TokenIds(spec);
  std::unordered_map<std::string, size_t> index;  // by content
  auto next_id = static_cast<int32_t>(vocab_entries);
  for (const Json& member : json) {
    ASSIGN_OR_RETURN(Spec::AddedToken token, ParseAddedToken(member, where));
    if (token.content.empty()) continue;
    const auto [known, is_new] = index.try_emplace(token.content, spec.added_tokens.size());
    int32_t id = next_id;
    if (const auto it = model_ids.find(token.content); it != model_ids.end()) {
      id = it->second;
    } else if (!is_new) {
      id = spec.added_tokens[known->second].id;
    } else {
      ++next_id;
    }
    if (id != token.id) {
      return fields.Wrong(fmt::format("id {} for '{}'", token.id, token.content), fmt::format("{}", id));
    }
    if (is_new) {
      spec.added_tokens.push_back(std::move(token));
    } else {
      spec.added_tokens[known->second] = std::move(token);
    }
  }
  return {};
}

// A member of the file, or JSON null.
const Json& Member(const Json& root, const char* name) {
  static const Json null;
  const auto it = root.find(name);
  return it == root.end() ? null : *it;
}

}  // namespace

Result<TokenizerSpec> ParseTokenizerJson(std::string_view json, std::string_view where) {
  if (JsonNestsDeeperThan(json, kMaxDepth))
    return InvalidInput("tokenizer.json: got more than {} levels, want fewer ({})", kMaxDepth, where);
  const Json root = Json::parse(json.begin(), json.end(), nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) return InvalidInput("tokenizer.json: got no JSON object, want one ({})", where);
  ASSIGN_OR_RETURN(const std::string version, JsonFields(root, "version", where).StringOr("version", "1.0"));
  if (version != "1.0") return InvalidInput("tokenizer.json version: got {}, want 1.0 ({})", version, where);

  Spec spec;
  TextSteps steps;
  RETURN_IF_ERROR(ParseNormalizer(Member(root, "normalizer"), where, steps));
  RETURN_IF_ERROR(ParsePreTokenizer(Member(root, "pre_tokenizer"), where, steps));
  RETURN_IF_ERROR(ApplyTextSteps(steps, where, spec));
  RETURN_IF_ERROR(ParseModel(Member(root, "model"), where, spec));
  const size_t vocab_entries = root["model"]["vocab"].size();
  RETURN_IF_ERROR(ParseAddedTokens(Member(root, "added_tokens"), vocab_entries, where, spec));
  RETURN_IF_ERROR(ParsePostProcessor(Member(root, "post_processor"), where, spec));
  RETURN_IF_ERROR(ParseDecoder(Member(root, "decoder"), where, spec));
  return spec;
}

}  // namespace plumbline

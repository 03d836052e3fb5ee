#include <algorithm>

#include "plumbline/text/space_mark.h"
#include "plumbline/text/tokenizer_json_parts.h"

namespace plumbline {

using Json = nlohmann::json;
using Spec = TokenizerSpec;

namespace {

// Appends the ids that `special_tokens` of a TemplateProcessing gives to the name in `piece`.
Status AppendSpecialIds(const JsonFields& fields, const Json& piece, std::vector<int32_t>& ids) {
  ASSIGN_OR_RETURN(const std::string name, JsonFields(piece, "post_processor", fields.where()).String("id"));
  const Json* tokens = fields.Find("special_tokens");
  const Json* token = tokens == nullptr ? nullptr : JsonFields(*tokens, "", "").Find(name.c_str());
  if (token == nullptr) return fields.Wrong("the special token " + name + " without ids", "its ids");
  ASSIGN_OR_RETURN(const Json* list, JsonFields(*token, "post_processor", fields.where()).Array("ids"));
  for (const Json& id : *list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX)
      return fields.Wrong("id " + id.dump(), "a token id");
    ids.push_back(id.get<int32_t>());
  }
  return {};
}

Status ParseTemplate(const JsonFields& fields, Spec& spec) {
  ASSIGN_OR_RETURN(const Json* single, fields.Array("single"));
  std::vector<int32_t> prefix, suffix;
  int sequences = 0;
  for (const Json& piece : *single) {
    const JsonFields piece_fields(piece, "post_processor", fields.where());
    if (piece_fields.Find("Sequence") != nullptr) {
      ++sequences;
    } else if (const Json* special = piece_fields.Find("SpecialToken")) {
      RETURN_IF_ERROR(AppendSpecialIds(fields, *special, sequences == 0 ? prefix : suffix));
    } else {
      return fields.Wrong("a template with another piece", "Sequence or SpecialToken");
    }
  }
  if (sequences != 1) return fields.Wrong(fmt::format("{} sequences in a template", sequences), "1");
  // A later processor puts its tokens around those of an earlier one.
  spec.prefix_ids.insert(spec.prefix_ids.begin(), prefix.begin(), prefix.end());
  spec.suffix_ids.insert(spec.suffix_ids.end(), suffix.begin(), suffix.end());
  return {};
}

// Whether a decoder step is Replace of U+2581 by a space.
bool IsMarkToSpace(const Json& step) {
  const Json want = {{"type", "Replace"}, {"pattern", {{"String", kSpaceMarkUtf8}}}, {"content", " "}};
  return step == want;
}

}  // namespace

Status ParsePostProcessor(const Json& json, std::string_view where, Spec& spec) {
  if (json.is_null()) return {};
  const JsonFields fields(json, "post_processor", where);
  ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const Json* members, fields.Array("processors"));
    for (const Json& member : *members) RETURN_IF_ERROR(ParsePostProcessor(member, where, spec));
    return {};
  }
  if (type == "ByteLevel") return {};  // moves offsets, not ids
  if (type == "TemplateProcessing") return ParseTemplate(fields, spec);
  return fields.Wrong(type, "ByteLevel, TemplateProcessing or a Sequence of them");
}

Status ParseDecoder(const Json& json, std::string_view where, Spec& spec) {
  const JsonFields fields(json, "decoder", where);
  ASSIGN_OR_RETURN(std::string type, fields.StringOr("type", "none"));
  std::vector<Json> steps = {json};
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const Json* members, fields.Array("decoders"));
    steps.assign(members->begin(), members->end());
  }
  std::vector<std::string> types;
  std::string names;
  for (const Json& step : steps) {
    ASSIGN_OR_RETURN(types.emplace_back(), JsonFields(step, "decoder", where).StringOr("type", "none"));
    names += (names.empty() ? "" : ", ") + types.back();
  }
  if (spec.model == Spec::Model::kByteLevelBpe) {
    return types == std::vector<std::string>{"ByteLevel"} ? Status() : fields.Wrong(names, "ByteLevel");
  }
  const std::vector<std::string> want = {"Replace", "ByteFallback", "Fuse", "Strip"};
  const bool strips = types.size() == 4;
  const bool known = (strips || types.size() == 3) && std::equal(types.begin(), types.end(), want.begin());
  if (!known || !IsMarkToSpace(steps[0])) {
    return fields.Wrong(names, "Replace of U+2581 by a space, ByteFallback, Fuse and perhaps Strip");
  }
  if (strips && steps[3] != Json{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}) {
    return fields.Wrong("Strip of " + steps[3].dump(-1, ' ', true, Json::error_handler_t::replace),
                        "Strip of one space at the start");
  }
  spec.strip_leading_space = strips;
  return {};
}

}  // namespace plumbline

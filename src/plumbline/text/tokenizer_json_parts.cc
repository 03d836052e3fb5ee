#include "plumbline/text/tokenizer_json_parts.h"

#include "plumbline/text/pretokenizer_patterns.h"
#include "plumbline/text/space_mark.h"

namespace plumbline {

using Json = nlohmann::json;
using Spec = TokenizerSpec;

const Json* JsonFields::Find(const char* name) const {
  if (!object_.is_object()) return nullptr;
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

std::unexpected<Error> JsonFields::Wrong(std::string_view got, std::string_view want) const {
  return InvalidInput("tokenizer.json {}: got {}, want {} ({})", component_, got, want, where_);
}

Result<bool> JsonFields::Bool(const char* name, bool otherwise) const {
  const Json* value = Find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) return Wrong(fmt::format("{} of another type", name), "true or false");
  return value->get<bool>();
}

Result<std::string> JsonFields::String(const char* name) const {
  const Json* value = Find(name);
  if (value == nullptr || !value->is_string()) return Wrong(fmt::format("no text {}", name), "one");
  return value->get<std::string>();
}

Result<std::string> JsonFields::StringOr(const char* name, std::string otherwise) const {
  return Find(name) == nullptr ? Result<std::string>(std::move(otherwise)) : String(name);
}

Result<int64_t> JsonFields::Int(const char* name) const {
  const Json* value = Find(name);
  if (value == nullptr || !value->is_number_integer())
    return Wrong(fmt::format("no integer {}", name), "one");
  if (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX)
    return Wrong(value->dump(), "a smaller number");
  return value->get<int64_t>();
}

Result<const Json*> JsonFields::Array(const char* name) const {
  const Json* value = Find(name);
  if (value == nullptr || !value->is_array()) return Wrong(fmt::format("no list {}", name), "one");
  return value;
}

namespace {

// {"String": x} of a pattern, or nothing.
std::string PatternString(const JsonFields& fields, const char* kind) {
  const Json* pattern = fields.Find("pattern");
  if (pattern == nullptr || !pattern->is_object()) return {};
  const auto it = pattern->find(kind);
  return it != pattern->end() && it->is_string() ? it->get<std::string>() : std::string();
}

Status ParseSplit(const JsonFields& fields, TextSteps& steps) {
  ASSIGN_OR_RETURN(const std::string behavior, fields.String("behavior"));
  ASSIGN_OR_RETURN(const bool invert, fields.Bool("invert", false));
  // Where every space is U+2581 by now, a split at spaces splits nothing.
  if (steps.marks_spaces && PatternString(fields, "String") == " ") return {};
  const std::string regex = PatternString(fields, "Regex");
  if (regex.empty() || behavior != "Isolated" || invert) {
    return fields.Wrong(fmt::format("Split with behavior {} and invert {}", behavior, invert),
                        "a regular expression with behavior Isolated, not inverted");
  }
  steps.regexes.push_back(regex);
  return {};
}

Status ParseByteLevel(const JsonFields& fields, TextSteps& steps) {
  ASSIGN_OR_RETURN(steps.add_prefix_space, fields.Bool("add_prefix_space", true));
  ASSIGN_OR_RETURN(const bool use_regex, fields.Bool("use_regex", true));
  if (steps.add_prefix_space && !steps.regexes.empty()) {
    return fields.Wrong("ByteLevel with add_prefix_space after another step", "one or the other");
  }
  if (use_regex) steps.regexes.emplace_back(kGpt2Pattern);
  steps.byte_level = true;
  return {};
}

Status ParseMetaspace(const JsonFields& fields, TextSteps& steps) {
  ASSIGN_OR_RETURN(const std::string replacement, fields.String("replacement"));
  ASSIGN_OR_RETURN(const std::string scheme, fields.StringOr("prepend_scheme", "always"));
  ASSIGN_OR_RETURN(const bool add_prefix_space, fields.Bool("add_prefix_space", scheme != "never"));
  ASSIGN_OR_RETURN(steps.splits_at_spaces, fields.Bool("split", true));
  if (replacement != kSpaceMarkUtf8) return fields.Wrong("Metaspace with another character", "U+2581");
  if (!add_prefix_space && scheme != "never") {
    return fields.Wrong("Metaspace without prefix space and scheme " + scheme, "never");
  }
  if (scheme == "first") {
    steps.metaspace_marker = Spec::SpaceMarker::kMetaspaceFirst;
  } else if (scheme != "always" && scheme != "never") {
    return fields.Wrong("Metaspace with scheme " + scheme, "first, always or never");
  }
  steps.add_prefix_space = scheme != "never";
  steps.metaspace = true;
  return {};
}

// Calls `parse` for each member of a Sequence, listed under `list`.
template <typename Parse>
Status ForEachMember(const JsonFields& fields, const char* list, Parse parse) {
  ASSIGN_OR_RETURN(const Json* members, fields.Array(list));
  for (const Json& member : *members) RETURN_IF_ERROR(parse(member));
  return {};
}

}  // namespace

Status ParseNormalizer(const Json& json, std::string_view where, TextSteps& steps) {
  if (json.is_null()) return {};
  const JsonFields fields(json, "normalizer", where);
  ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
  if (type == "Sequence") {
    return ForEachMember(fields, "normalizers",
                         [&](const Json& member) { return ParseNormalizer(member, where, steps); });
  }
  if (type == "NFC") {
    steps.nfc = true;
    return {};
  }
  if (type == "Prepend") {
    ASSIGN_OR_RETURN(const std::string text, fields.String("prepend"));
    if (text != kSpaceMarkUtf8 || steps.marks_spaces || steps.prepends_mark) {
      return fields.Wrong("Prepend of '" + text + "'", "Prepend of U+2581, once, before Replace");
    }
    steps.prepends_mark = true;
    return {};
  }
  if (type == "Replace") {
    ASSIGN_OR_RETURN(const std::string content, fields.String("content"));
    if (PatternString(fields, "String") != " " || content != kSpaceMarkUtf8) {
      return fields.Wrong("Replace by '" + content + "'", "Replace of a space by U+2581");
    }
    steps.marks_spaces = true;
    return {};
  }
  return fields.Wrong(type, "NFC, Prepend, Replace or a Sequence of them");
}

Status ParsePreTokenizer(const Json& json, std::string_view where, TextSteps& steps) {
  if (json.is_null()) return {};
  const JsonFields fields(json, "pre_tokenizer", where);
  ASSIGN_OR_RETURN(const std::string type_text, fields.String("type"));
  const std::string_view type = type_text;
  if (type == "Sequence") {
    return ForEachMember(fields, "pretokenizers",
                         [&](const Json& member) { return ParsePreTokenizer(member, where, steps); });
  }
  if (steps.byte_level || steps.metaspace)
    return fields.Wrong(type_text + " after ByteLevel or Metaspace", "nothing more");
  if (type == "ByteLevel") return ParseByteLevel(fields, steps);
  if (type == "Metaspace") return ParseMetaspace(fields, steps);
  if (type == "Split") return ParseSplit(fields, steps);
  if (type == "Digits") {
    ASSIGN_OR_RETURN(const bool individual, fields.Bool("individual_digits", false));
    steps.regexes.emplace_back(individual ? kDigitPattern : kDigitsPattern);
    return {};
  }
  return fields.Wrong(type, "ByteLevel, Split, Digits, Metaspace or a Sequence of them");
}

namespace {

void ApplyRegexes(const std::vector<std::string>& regexes, Spec& spec) {
  const auto are = [&](std::initializer_list<std::string_view> patterns) {
    return std::equal(regexes.begin(), regexes.end(), patterns.begin(), patterns.end());
  };
  if (regexes.empty()) {
    spec.pre_tokenizer = Spec::PreTokenizer::kNone;
  } else if (are({kGpt2Pattern})) {
    spec.pre_tokenizer = Spec::PreTokenizer::kGpt2;
  } else if (are({kLlama3Pattern})) {
    spec.pre_tokenizer = Spec::PreTokenizer::kLlama3;
  } else if (are({kQwen2Pattern})) {
    spec.pre_tokenizer = Spec::PreTokenizer::kQwen2;
  } else if (are({kDigitPattern, kGpt2Pattern})) {
    spec.pre_tokenizer = Spec::PreTokenizer::kSmolLm;
  } else {
    spec.pre_tokenizer = Spec::PreTokenizer::kCustomRegex;
    spec.custom_regex = regexes.front();
    spec.more_regexes.assign(regexes.begin() + 1, regexes.end());
  }
}

}  // namespace

Status ApplyTextSteps(const TextSteps& steps, std::string_view where, Spec& spec) {
  const Json none;
  const JsonFields fields(none, "normalizer and pre_tokenizer", where);
  spec.add_prefix_space = steps.add_prefix_space;
  if (steps.byte_level) {
    if (steps.prepends_mark || steps.marks_spaces)
      return fields.Wrong("ByteLevel and U+2581", "one or the other");
    spec.model = Spec::Model::kByteLevelBpe;
    spec.nfc = steps.nfc;
    ApplyRegexes(steps.regexes, spec);
    return {};
  }
  if (steps.nfc || !steps.regexes.empty())
    return fields.Wrong("Split, Digits or NFC without ByteLevel", "ByteLevel");
  if (steps.metaspace == steps.marks_spaces) {
    return fields.Wrong(
        steps.metaspace ? "both Replace and Metaspace" : "neither ByteLevel nor Replace nor Metaspace",
        "one of them");
  }
  if (steps.metaspace && steps.prepends_mark)
    return fields.Wrong("Prepend and Metaspace", "one or the other");
  spec.model = Spec::Model::kSpmBpe;
  spec.pre_tokenizer = Spec::PreTokenizer::kNone;
  spec.space_marker = steps.metaspace ? steps.metaspace_marker : Spec::SpaceMarker::kNormalizer;
  spec.split_at_spaces = steps.splits_at_spaces;
  if (!steps.metaspace) spec.add_prefix_space = steps.prepends_mark;
  return {};
}

}  // namespace plumbline

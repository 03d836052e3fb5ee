#include "plumbline/io/request_lines.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "plumbline/base/json_depth.h"

namespace plumbline {
namespace {

using nlohmann::json;

// Deeper nesting than a request can have is refused before the parser recurses into it.
constexpr int kMaxDepth = 8;

Result<std::vector<int32_t>> ReadTokens(const json& value, std::string_view place) {
  std::vector<int32_t> tokens;
  if (!value.is_array())
    return InvalidInput("tokens: got a {}, want an array of ids ({})", value.type_name(), place);
  for (const json& id : value) {
    const bool fits = id.is_number_integer() &&
                      (id.is_number_unsigned() ? id.get<uint64_t>() <= INT32_MAX : id.get<int64_t>() >= 0);
    if (!fits) return InvalidInput("tokens: got {}, want ids of 0 or more ({})", id.dump(), place);
    tokens.push_back(id.get<int32_t>());
  }
  return tokens;
}

Result<std::string> ReadText(const json& object, const char* field, std::string_view place) {
  const json& value = object[field];
  if (!value.is_string())
    return InvalidInput("{}: got a {}, want a string ({})", field, value.type_name(), place);
  return value.get<std::string>();
}

Result<InputDocument> ParseLine(std::string_view line, size_t number, const std::string& place) {
  if (JsonNestsDeeperThan(line, kMaxDepth))
    return InvalidInput("request: got nesting deeper than {}, want one object ({})", kMaxDepth, place);
  const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded())
    return InvalidInput("request: got malformed JSON, want one object a line ({})", place);
  if (!object.is_object())
    return InvalidInput("request: got a {}, want an object ({})", object.type_name(), place);
  for (const auto& [key, value] : object.items()) {
    if (key != "id" && key != "text" && key != "tokens" && key != "context" && key != "continuation") {
      return InvalidInput("request: got the field '{}', want id, text, tokens, context or continuation ({})",
                          key, place);
    }
  }
  InputDocument document;
  document.id = std::to_string(number);
  if (object.contains("id")) {
    const json& id = object["id"];
    if (!id.is_string() && !id.is_number_integer()) {
      return InvalidInput("id: got a {}, want a string or an integer ({})", id.type_name(), place);
    }
    document.id = id.is_string() ? id.get<std::string>() : id.dump();
  }
  const bool text = object.contains("text"), tokens = object.contains("tokens");
  const bool pair = object.contains("context") || object.contains("continuation");
  if (text + tokens + pair != 1) {
    return InvalidInput("request: got {} of text, tokens and context with continuation, want one ({})",
                        text + tokens + pair, place);
  }
  if (text) {
    ASSIGN_OR_RETURN(document.text, ReadText(object, "text", place));
  } else if (tokens) {
    ASSIGN_OR_RETURN(document.tokens, ReadTokens(object["tokens"], place));
  } else {
    if (!object.contains("context") || !object.contains("continuation")) {
      return InvalidInput("request: got only one of context and continuation, want both ({})", place);
    }
    ASSIGN_OR_RETURN(document.text, ReadText(object, "context", place));
    ASSIGN_OR_RETURN(document.continuation, ReadText(object, "continuation", place));
  }
  return document;
}

}  // namespace

Result<std::vector<InputDocument>> ParseRequestLines(std::string_view text, std::string_view where) {
  std::vector<InputDocument> documents;
  std::set<std::string> ids;
  size_t line_number = 0;
  while (!text.empty()) {
    const size_t newline = text.find('\n');
    const std::string_view line = text.substr(0, newline);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string place = fmt::format("{}, line {}", where, line_number);
    ASSIGN_OR_RETURN(InputDocument document, ParseLine(line, documents.size(), place));
    if (!ids.insert(document.id).second) {
      return InvalidInput("id: got '{}' twice, want each once ({})", document.id, place);
    }
    documents.push_back(std::move(document));
  }
  return documents;
}

}  // namespace plumbline

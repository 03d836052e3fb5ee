// The parts of tokenizer.json beside the model: what happens to text before it and to ids after it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plumbline/base/status.h"
#include "plumbline/text/tokenizer.h"

namespace plumbline {

// Reads fields of JSON objects; errors name the component and the file.
class JsonFields {
 public:
  JsonFields(const nlohmann::json& object, std::string_view component, std::string_view where)
      : object_(object), component_(component), where_(where) {}

  const nlohmann::json* Find(const char* name) const;  // null where absent, JSON null, or this is no object
  Result<bool> Bool(const char* name, bool otherwise) const;
  Result<std::string> String(const char* name) const;
  Result<std::string> StringOr(const char* name, std::string otherwise) const;
  Result<int64_t> Int(const char* name) const;
  Result<const nlohmann::json*> Array(const char* name) const;

  // "tokenizer.json <component>: got <got>, want <want> (<where>)"
  std::unexpected<Error> Wrong(std::string_view got, std::string_view want) const;
  std::string_view where() const { return where_; }

 private:
  const nlohmann::json& object_;
  std::string_view component_, where_;
};

// What the normalizer and the pre-tokenizer together say.
struct TextSteps {
  bool nfc = false;
  bool prepends_mark = false;  // Prepend U+2581
  bool marks_spaces = false;   // Replace " " by U+2581
  std::vector<std::string> regexes;
  bool byte_level = false;
  bool add_prefix_space = false;
  bool metaspace = false;
  bool splits_at_spaces = false;
  TokenizerSpec::SpaceMarker metaspace_marker = TokenizerSpec::SpaceMarker::kMetaspaceAlways;
};

// Each takes the component's JSON; a JSON null adds nothing.
Status ParseNormalizer(const nlohmann::json& json, std::string_view where, TextSteps& steps);
Status ParsePreTokenizer(const nlohmann::json& json, std::string_view where, TextSteps& steps);
// Sets family, splitting and space rules of `spec`, or says which combination it cannot express.
Status ApplyTextSteps(const TextSteps& steps, std::string_view where, TokenizerSpec& spec);
// Adds to prefix_ids and suffix_ids.
Status ParsePostProcessor(const nlohmann::json& json, std::string_view where, TokenizerSpec& spec);
// Checks that the decoder is the one of the spec's family; sets strip_leading_space.
Status ParseDecoder(const nlohmann::json& json, std::string_view where, TokenizerSpec& spec);

}  // namespace plumbline

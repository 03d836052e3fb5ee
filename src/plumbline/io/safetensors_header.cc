#include "plumbline/io/safetensors_header.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "plumbline/io/quote.h"

namespace plumbline {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMetadataName = "__metadata__";
constexpr size_t kMaxNumbers = 16;  // of one array: more dimensions than any tensor has

// Takes the events of the JSON parser. Not a document tree: the structure is fixed and shallow, so a hostile
// header is refused at its first surprise, before it is built in memory; and a tree would lose duplicate
// keys.
class HeaderHandler final : public nlohmann::json_sax<Json> {
 public:
  std::vector<SafetensorsEntry> entries;
  std::string fault;  // "what: got X, want Y", set where an event was refused

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a bool"); }
  bool number_integer(number_integer_t value) override {
    return Refuse(fmt::format("got {}, want {}", value, Wanted()));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return Refuse(fmt::format("got {}, want {}", Quote(text), Wanted()));
  }
  bool binary(binary_t&) override { return Unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kNumbers) return Unexpected("a number");
    if (numbers_.size() == kMaxNumbers)
      return Refuse(fmt::format("got more than {} numbers, want fewer", kMaxNumbers));
    numbers_.push_back(value);
    return true;
  }

  bool string(string_t& text) override {
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kEntry || field_ != "dtype") return Unexpected("a string");
    entries.back().dtype = text;
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kOutside) {
      place_ = Place::kHeader;
      return true;
    }
    if (place_ != Place::kHeader) return Unexpected("an object");
    place_ = name_ == kMetadataName ? Place::kMetadata : Place::kEntry;
    if (place_ == Place::kEntry) entries.emplace_back().name = name_;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kEntry && fields_.size() != 3) {
      field_.clear();
      return Refuse(fmt::format("got {} of its fields, want dtype, shape and data_offsets", fields_.size()));
    }
    place_ = place_ == Place::kHeader ? Place::kOutside : Place::kHeader;
    field_.clear();
    fields_.clear();
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::kEntry || field_ == "dtype") return Unexpected("an array");
    place_ = Place::kNumbers;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    place_ = Place::kEntry;
    if (field_ == "shape") {
      entries.back().shape = numbers_;
      return true;
    }
    if (numbers_.size() != 2) return Refuse(fmt::format("got {} numbers, want 2", numbers_.size()));
    entries.back().begin = numbers_[0];
    entries.back().end = numbers_[1];
    return true;
  }

  bool key(string_t& text) override {
    if (place_ == Place::kHeader) {
      name_ = text;
      return names_.insert(text).second || Refuse("got it twice, want unique names");
    }
    field_ = text;
    if (!fields_.insert(text).second) return Refuse("got it twice, want it once");
    if (place_ == Place::kMetadata || text == "dtype" || text == "shape" || text == "data_offsets")
      return true;
    return Refuse("got an unknown field, want dtype, shape and data_offsets");
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    fault = fmt::format("header: got invalid JSON at byte {}, want one JSON object", position);
    return false;
  }

 private:
  enum class Place { kOutside, kHeader, kMetadata, kEntry, kNumbers };

  std::string_view Wanted() const {
    switch (place_) {
      case Place::kOutside:
        return "an object";
      case Place::kHeader:
        return "an object";
      case Place::kMetadata:
        return "a string";
      case Place::kNumbers:
        return "an integer of 0 or more";
      case Place::kEntry:
        return field_ == "dtype" ? "a string" : "an array of integers";
    }
    return "";
  }

  bool Unexpected(std::string_view got) { return Refuse(fmt::format("got {}, want {}", got, Wanted())); }

  // Prefixes the place: header, the tensor, its field.
  bool Refuse(std::string_view problem) {
    std::string what = "header";
    if (place_ != Place::kOutside) what = fmt::format("tensor {}", Quote(name_));
    if (name_ == kMetadataName) what = kMetadataName;
    if (!field_.empty()) what += fmt::format(" {}", Quote(field_));
    fault = fmt::format("{}: {}", what, problem);
    return false;
  }

  Place place_ = Place::kOutside;
  std::string name_;               // the key whose value is being read, at the top
  std::string field_;              // and inside it
  std::vector<uint64_t> numbers_;  // of the array being read
  std::set<std::string> names_;    // keys seen at the top
  std::set<std::string> fields_;   // and inside the object being read
};

constexpr std::pair<std::string_view, DType> kDTypes[] = {
    {"F32", DType::kF32}, {"F16", DType::kF16}, {"BF16", DType::kBF16}, {"I32", DType::kI32},
    {"I64", DType::kI64}, {"U8", DType::kU8},   {"U32", DType::kU32},
};

}  // namespace

Result<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(std::string_view json, std::string_view where) {
  // The format wants the object first, so that a file is not mistaken for another kind; the JSON parser takes
  // a NUL for the end of its input and would not see what follows.
  if (!json.starts_with('{'))
    return InvalidInput("header: got no leading '{{', want a JSON object ({})", where);
  if (json.find('\0') != std::string_view::npos) {
    return InvalidInput("header: got a NUL byte, want a JSON object ({})", where);
  }
  HeaderHandler handler;
  if (!Json::sax_parse(json.begin(), json.end(), &handler))
    return InvalidInput("{} ({})", handler.fault, where);
  return std::move(handler.entries);
}

std::optional<DType> SafetensorsDType(std::string_view name) {
  for (const auto& [known, dtype] : kDTypes) {
    if (name == known) return dtype;
  }
  return std::nullopt;
}

std::optional<std::string_view> SafetensorsName(DType dtype) {
  for (const auto& [name, known] : kDTypes) {
    if (dtype == known) return name;
  }
  return std::nullopt;
}

}  // namespace plumbline

// Strict JSON text, built without a document tree so that a result of any length costs only its own
// characters.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <span>
#include <string>
#include <string_view>

namespace plumbline::cli {

// What strict JSON writes for -inf, beside a "neg_inf" list.
inline constexpr std::string_view kNegInfText = "-9999.0";

// A quoted, escaped string. `text` may be broken UTF-8: each maximal ill-formed part becomes U+FFFD.
void AppendJsonString(std::string& out, std::string_view text);

// The shortest decimal that reads back to the same float. Not for NaN or +inf.
inline void AppendJsonFloat(std::string& out, float value) {
  if (std::isinf(value)) {
    out += kNegInfText;
  } else {
    fmt::format_to(std::back_inserter(out), "{}", value);
  }
}

// [a, b, ...] of anything, each element written by fn(out, element).
template <typename T, typename Fn>
void AppendJsonArray(std::string& out, const T& elements, Fn&& fn) {
  out += '[';
  bool first = true;
  for (const auto& element : elements) {
    if (!first) out += ", ";
    first = false;
    fn(out, element);
  }
  out += ']';
}

// Writes one object: Field() puts the separators and the key. `pretty`: a line a field.
class JsonObject {
 public:
  JsonObject(std::string& out, bool pretty) : out_(out), pretty_(pretty) { out_ += '{'; }
  std::string& Field(std::string_view key) {
    if (!first_) out_ += pretty_ ? ",\n " : ", ";
    first_ = false;
    AppendJsonString(out_, key);
    out_ += ": ";
    return out_;
  }
  void Close() { out_ += '}'; }

 private:
  std::string& out_;
  bool pretty_;
  bool first_ = true;
};

}  // namespace plumbline::cli

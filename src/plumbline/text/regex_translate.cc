#include "plumbline/text/regex_translate.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "plumbline/text/unicode_tables.h"

namespace plumbline {
namespace {

constexpr size_t kMaxPattern = 16384;
constexpr std::string_view kSpaces =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{"
    "3000}";
constexpr std::string_view kNotSpaces =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}";
// Han characters that came after Unicode 14.
constexpr std::string_view kLaterHan = "\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}";

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> Run() {
    while (pos_ < in_.size()) {
      if (in_[pos_] == '\\') {
        RETURN_IF_ERROR(Escape());
      } else if (in_class_) {
        RETURN_IF_ERROR(ClassCharacter());
      } else {
        RETURN_IF_ERROR(Character());
      }
    }
    if (in_class_) return Unsupported("a class without an end");
    return std::move(out_);
  }

 private:
  std::unexpected<Error> Unsupported(std::string_view what) const {
    return InvalidInput(
        "regular expression: got {} at byte {}, want syntax with one meaning in Oniguruma and PCRE2", what,
        pos_);
  }
  bool At(std::string_view text) const { return in_.substr(pos_).starts_with(text); }
  void Copy(size_t n) {
    out_ += in_.substr(pos_, n);
    pos_ += n;
  }

  Status Character() {
    if (At("[")) {
      in_class_ = true;
      Copy(At("[^") ? 2 : 1);
      if (At("]")) return Unsupported("a class that starts with ]");
      return {};
    }
    if (At("(")) return Group();
    if (At("{")) return Interval();
    Copy(1);
    return {};
  }

  Status ClassCharacter() {
    if (At("[")) return Unsupported("a class in a class");
    if (At("&&")) return Unsupported("&&");
    if (At("]")) in_class_ = false;
    Copy(1);
    return {};
  }

  Status Group() {
    static constexpr std::array<std::string_view, 7> kKnown = {"(?:",  "(?i:", "(?=", "(?!",
                                                               "(?<=", "(?<!", "(?>"};
    if (At("(*")) return Unsupported("(*");
    if (!At("(?")) {
      Copy(1);
      return {};
    }
    for (const std::string_view known : kKnown) {
      if (At(known)) {
        Copy(known.size());
        return {};
      }
    }
    return Unsupported("a group of an unknown kind");
  }

  Status Interval() {
    size_t end = pos_ + 1;
    while (end < in_.size() && (std::isdigit(static_cast<unsigned char>(in_[end])) || in_[end] == ',')) ++end;
    if (end == in_.size() || in_[end] != '}' || end == pos_ + 1 || in_[pos_ + 1] == ',') {
      return Unsupported("a { that is no interval");
    }
    if (end + 1 < in_.size() && in_[end + 1] == '+') return Unsupported("{..}+");
    Copy(end + 1 - pos_);
    return {};
  }

  // Writes a set of characters: its members inside a class, a class of them outside.
  Status Set(std::string_view members, bool negated) {
    if (in_class_ && negated) return Unsupported("a negated property in a class");
    if (!in_class_) out_ += negated ? "[^" : "[";
    out_ += members;
    if (!in_class_) out_ += "]";
    return {};
  }

  Status Escape() {
    const char c = pos_ + 1 < in_.size() ? in_[pos_ + 1] : '\0';
    if (std::string_view("rntf").find(c) != std::string_view::npos && c != '\0') {
      Copy(2);
      return {};
    }
    if (std::ispunct(static_cast<unsigned char>(c)) || c == ' ') {
      Copy(2);
      return {};
    }
    if (c == 'x' || c == 'u') return CodePoint(c);
    if (c == 'p' || c == 'P') return Property(c == 'P');
    if (c == 's' || c == 'S' || c == 'd' || c == 'D') {
      pos_ += 2;
      if (c == 's') return Set(kSpaces, false);
      if (c == 'S') return Set(kNotSpaces, false);
      return Set(Category("Nd"), c == 'D');
    }
    return Unsupported(c == '\0' ? std::string("a lone \\") : fmt::format("\\{}", c));
  }

  // \xHH, \x{H...} and \uHHHH.
  Status CodePoint(char kind) {
    const bool braces = kind == 'x' && pos_ + 2 < in_.size() && in_[pos_ + 2] == '{';
    const size_t begin = pos_ + (braces ? 3 : 2);
    const size_t longest = braces ? 8 : kind == 'x' ? 2 : 4;
    size_t end = begin;
    while (end < in_.size() && end - begin < longest && std::isxdigit(static_cast<unsigned char>(in_[end])))
      ++end;
    const bool closed = !braces || (end < in_.size() && in_[end] == '}');
    const bool whole = braces ? end > begin : end - begin == longest;
    if (!closed || !whole) return Unsupported("a malformed \\x or \\u");
    // \x80 and up name a byte in Oniguruma, not a character.
    if (kind == 'x' && !braces && in_[begin] >= '8') return Unsupported("\\x of a byte");
    out_ += fmt::format("\\x{{{}}}", in_.substr(begin, end - begin));
    pos_ = end + (braces ? 1 : 0);
    return {};
  }

  Status Property(bool negated) {
    const size_t close = in_.find('}', pos_);
    if (!(pos_ + 2 < in_.size() && in_[pos_ + 2] == '{') || close == std::string_view::npos) {
      return Unsupported("a property without braces");
    }
    std::string_view name = in_.substr(pos_ + 3, close - pos_ - 3);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    std::string members;
    if (name == "Han") {
      members = fmt::format("\\p{{sc:Han}}{}", kLaterHan);
    } else if (IsCategory(name)) {
      members = Category(name);
    } else {
      return Unsupported(fmt::format("\\p{{{}}}", name.substr(0, 32)));
    }
    pos_ = close + 1;
    return Set(members, negated);
  }

  // C and Cn are left out, which lost what later versions of Unicode gained; Mn and Mc too, since a mark
  // moved from one to the other.
  static bool IsCategory(std::string_view name) {
    static constexpr std::array<std::string_view, 28> kNames = {
        "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Me", "N",  "Nd", "Nl", "No", "P",  "Pc",
        "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Cc"};
    return std::ranges::find(kNames, name) != kNames.end();
  }

  static std::string Category(std::string_view name) {
    std::string members = fmt::format("\\p{{{}}}", name);
    char32_t last = 0;
    bool open = false;  // members ends with a range up to `last`
    for (const unicode::CategoryRange& range : unicode::LaterCategories()) {
      if (!std::string_view(range.category).starts_with(name)) continue;
      if (open && last + 1 == range.first) {
        members.erase(members.rfind('-'));
      } else {
        members += fmt::format("\\x{{{:x}}}", static_cast<uint32_t>(range.first));
      }
      members += fmt::format("-\\x{{{:x}}}", static_cast<uint32_t>(range.last));
      last = range.last;
      open = true;
    }
    return members;
  }

  std::string_view in_;
  size_t pos_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

Result<std::string> TranslateRegex(std::string_view pattern) {
  if (pattern.size() > kMaxPattern) {
    return InvalidInput("regular expression: got {} bytes, want at most {}", pattern.size(), kMaxPattern);
  }
  return Translator(pattern).Run();
}

}  // namespace plumbline

#include "plumbline/cli/json_writer.h"

#include "plumbline/text/utf8.h"

namespace plumbline::cli {

void AppendJsonString(std::string& out, std::string_view text) {
  std::string valid;
  AppendLossy(text, valid);
  out += '"';
  for (const char c : valid) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

}  // namespace plumbline::cli

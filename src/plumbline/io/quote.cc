#include "plumbline/io/quote.h"

#include <fmt/format.h>

namespace plumbline {

std::string Quote(std::string_view text) {
  constexpr size_t kLongest = 80;
  std::string out = "'";
  for (unsigned char c : text.substr(0, kLongest)) {
    if (c >= 0x20 && c < 0x7f) {
      out += static_cast<char>(c);
    } else {
      out += fmt::format("\\x{:02x}", c);
    }
  }
  if (text.size() > kLongest) out += "...";
  return out + "'";
}

}  // namespace plumbline

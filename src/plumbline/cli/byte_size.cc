#include "plumbline/cli/byte_size.h"

#include <charconv>
#include <limits>
#include <string_view>
#include <utility>

namespace plumbline::cli {
namespace {

constexpr std::pair<std::string_view, int64_t> kUnits[] = {
    {"", 1},          {"B", 1},     {"KiB", 1 << 10}, {"MiB", 1 << 20},
    {"GiB", 1 << 30}, {"kB", 1000}, {"MB", 1000000},  {"GB", 1000000000}};

}  // namespace

Result<int64_t> ParseByteSize(const std::string& what, const std::string& text) {
  int64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, count);
  const std::string_view unit(parsed, end);
  for (const auto& [name, bytes] : kUnits) {
    if (error != std::errc() || name != unit || count <= 0) continue;
    if (count <= std::numeric_limits<int64_t>::max() / bytes) return count * bytes;
  }
  return InvalidInput("{}: got '{}', want a size above 0 such as 600MiB or 2GB", what, text);
}

}  // namespace plumbline::cli

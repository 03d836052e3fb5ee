// Sizes as people write them: "600MiB", "2GB", "1000000".
#pragma once

#include <cstdint>
#include <string>

#include "plumbline/base/status.h"

namespace plumbline::cli {

// A whole number above 0 with no unit or B, KiB, MiB, GiB (powers of 1024), kB, MB or GB (of 1000). `what`
// names the option in errors.
Result<int64_t> ParseByteSize(const std::string& what, const std::string& text);

}  // namespace plumbline::cli

#pragma once

#include <cstdint>

namespace plumbline {

inline constexpr int64_t kHugePage = int64_t{2} << 20;  // bytes of a transparent one, and where it may begin

}  // namespace plumbline

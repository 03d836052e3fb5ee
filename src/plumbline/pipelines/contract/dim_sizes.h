// The largest sizes of named dimensions.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace plumbline {

using DimSizes = std::map<std::string, int64_t, std::less<>>;

}  // namespace plumbline

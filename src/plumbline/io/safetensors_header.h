// The JSON header of a safetensors file, and the names of its element types.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plumbline/base/dtype.h"
#include "plumbline/base/status.h"

namespace plumbline {

// One entry of the header as written, not yet compared with the file.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  uint64_t begin = 0;  // data_offsets
  uint64_t end = 0;
};

// Refuses JSON of any other structure, numbers that are not integers of 0 to 2^64 - 1, unknown or missing
// fields and duplicate keys.
Result<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(std::string_view json, std::string_view where);

// "BF16" -> kBF16; empty for a type this library does not read.
std::optional<DType> SafetensorsDType(std::string_view name);
// Empty for a block-quantised type.
std::optional<std::string_view> SafetensorsName(DType dtype);

}  // namespace plumbline

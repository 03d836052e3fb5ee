// The numbers by which GGUF names element types.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "plumbline/base/dtype.h"

namespace plumbline {

struct GgmlType {
  std::string_view name;       // "Q4_K"
  std::optional<DType> dtype;  // empty: ggml has the type, this library does not read it
};

// Null for a number that no version of ggml has given to a type.
const GgmlType* FindGgmlType(uint32_t number);

}  // namespace plumbline

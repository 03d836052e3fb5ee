#include "plumbline/base/dtype.h"

#include "plumbline/base/check.h"

namespace plumbline {
namespace {

constexpr DTypeInfo kInfos[] = {
    {"f32", 1, 4},    {"f16", 1, 2},    {"bf16", 1, 2},     {"i32", 1, 4},      {"i64", 1, 8},
    {"u8", 1, 1},     {"u32", 1, 4},    {"q4_0", 32, 18},   {"q4_1", 32, 20},   {"q5_0", 32, 22},
    {"q5_1", 32, 24}, {"q8_0", 32, 34}, {"q4_k", 256, 144}, {"q5_k", 256, 176}, {"q6_k", 256, 210},
};

}  // namespace

const DTypeInfo& Info(DType dtype) { return kInfos[static_cast<int>(dtype)]; }

int64_t ByteSize(DType dtype, int64_t elements) {
  const DTypeInfo& info = Info(dtype);
  PLUMBLINE_CHECK(elements % info.block_elements == 0);
  return elements / info.block_elements * info.block_bytes;
}

std::string_view Name(Compute compute) {
  constexpr std::string_view kNames[] = {"bf16", "f32", "int8"};
  return kNames[static_cast<int>(compute)];
}

std::optional<Compute> ParseCompute(std::string_view name) {
  for (Compute compute : kAllComputes) {
    if (name == Name(compute)) return compute;
  }
  return std::nullopt;
}

}  // namespace plumbline

// The element types of tensors and checkpoints. Block-quantised types hold `block_elements` weights in
// `block_bytes` bytes, laid out as GGUF defines them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace plumbline {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kI32,
  kI64,
  kU8,
  kU32,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};

struct DTypeInfo {
  std::string_view name;   // "f32", "q4_1", ...
  int32_t block_elements;  // 1 for plain types
  int32_t block_bytes;
};

const DTypeInfo& Info(DType dtype);
inline bool IsQuantized(DType dtype) { return Info(dtype).block_elements > 1; }

// Bytes of `elements` consecutive elements; `elements` is a multiple of the type's block.
int64_t ByteSize(DType dtype, int64_t elements);

// The arithmetic of matmuls (--compute): what activations and weights are rounded to on entry. kInt8:
// activations to integers of 8 bits for every 32 of them, against quantised weights as they are; what has no
// integers (weights of other types, attention, the KV cache) is computed as of kBf16.
enum class Compute : uint8_t { kBf16, kF32, kInt8 };
inline constexpr Compute kAllComputes[] = {Compute::kBf16, Compute::kF32, Compute::kInt8};
std::string_view Name(Compute compute);
std::optional<Compute> ParseCompute(std::string_view name);

// What a run computes without integers of its own in.
constexpr Compute WithoutIntegers(Compute compute) {
  return compute == Compute::kInt8 ? Compute::kBf16 : compute;
}

}  // namespace plumbline

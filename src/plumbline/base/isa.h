// The instruction sets a kernel exists for. Chosen once at start-up, or forced by --isa; results do not
// depend on it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "plumbline/base/status.h"

namespace plumbline {

enum class Isa : uint8_t { kAvx2, kAvx512, kAvx512Bf16 };

std::string_view Name(Isa isa);  // "avx2", "avx512", "avx512_bf16"

// What this machine has, weakest first. Empty where AVX2 or FMA is missing.
std::vector<Isa> SupportedIsas();

// "auto" is the strongest supported. An unknown name or one this machine lacks is an error.
Result<Isa> ParseIsa(std::string_view name);

// The one of three that belongs to `isa`: how an operation picks its table of kernels.
template <typename T>
const T& ForIsa(Isa isa, const T& avx2, const T& avx512, const T& avx512_bf16) {
  if (isa == Isa::kAvx2) return avx2;
  return isa == Isa::kAvx512 ? avx512 : avx512_bf16;
}

}  // namespace plumbline

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

}  // namespace plumbline

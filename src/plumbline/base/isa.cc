#include "plumbline/base/isa.h"

namespace plumbline {

std::string_view Name(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512_bf16";
  }
  return "?";
}

std::vector<Isa> SupportedIsas() {
#if defined(PLUMBLINE_EMULATE_AVX512)
  return {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16};
#endif
  std::vector<Isa> isas;
  const auto has = [](auto... features) { return (features && ...); };
  if (!has(__builtin_cpu_supports("avx2"), __builtin_cpu_supports("fma"))) return isas;
  isas.push_back(Isa::kAvx2);
  if (!has(__builtin_cpu_supports("avx512f"), __builtin_cpu_supports("avx512bw"),
           __builtin_cpu_supports("avx512dq"), __builtin_cpu_supports("avx512vl"),
           __builtin_cpu_supports("avx512cd"))) {
    return isas;
  }
  isas.push_back(Isa::kAvx512);
  if (has(__builtin_cpu_supports("avx512bf16"), __builtin_cpu_supports("avx512vnni"))) {
    isas.push_back(Isa::kAvx512Bf16);
  }
  return isas;
}

Result<Isa> ParseIsa(std::string_view name) {
  const std::vector<Isa> supported = SupportedIsas();
  if (supported.empty()) return InvalidInput("cpu: got no AVX2 with FMA, want x86-64-v3 or better");
  if (name == "auto") return supported.back();
  for (Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    if (name != Name(isa)) continue;
    for (Isa have : supported) {
      if (have == isa) return isa;
    }
    return InvalidInput("--isa: got {}, want one this machine has (the strongest is {})", name,
                        Name(supported.back()));
  }
  return InvalidInput("--isa: got '{}', want auto, avx2, avx512 or avx512_bf16", name);
}

}  // namespace plumbline

#include "plumbline/kernels/limits/isa_choice.h"

#include <algorithm>
#include <chrono>

#include "plumbline/kernels/limits/limits_kernels_of.h"

namespace plumbline {
namespace {

constexpr int64_t kSteps = 500;
constexpr int kRuns = 8;  // the best of which counts: interruptions only slow a run down

double OperationsPerSecond(float (*loop)(int64_t steps), int64_t a_step) {
  using Clock = std::chrono::steady_clock;
  double best = 1e30;
  volatile float sink = 0;  // the loop's result is used
  for (int run = 0; run < kRuns; ++run) {
    const Clock::time_point begin = Clock::now();
    sink = loop(kSteps);
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  static_cast<void>(sink);
  return static_cast<double>(kSteps * a_step) / best;
}

}  // namespace

Isa ChooseIsa(Isa strongest, double dot_bf16, double multiply_add) {
  return strongest == Isa::kAvx512Bf16 && dot_bf16 < multiply_add ? Isa::kAvx512 : strongest;
}

Result<Isa> FastestIsa() {
  ASSIGN_OR_RETURN(const Isa strongest, ParseIsa("auto"));
  if (strongest != Isa::kAvx512Bf16) return strongest;
  const LimitsKernels& kernels = LimitsKernelsOf(strongest);
  return ChooseIsa(strongest, OperationsPerSecond(kernels.dot_bf16, kDotBf16Operations),
                   OperationsPerSecond(kernels.multiply_add, kMultiplyAddOperations));
}

}  // namespace plumbline

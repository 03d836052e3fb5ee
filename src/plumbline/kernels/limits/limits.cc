#include "plumbline/kernels/limits/limits.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "plumbline/kernels/limits/limits_kernels_of.h"
#include "plumbline/tensor/buffer.h"

namespace plumbline {
namespace {

constexpr int64_t kReadBytes = int64_t{256} << 20;  // beyond any cache
constexpr int64_t kSteps = 100000;                  // under a millisecond a thread
constexpr int64_t kStreams = 4;

template <typename Body>
double BestSeconds(double seconds, Body&& body) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  double best = 1e30;
  for (int run = 0; run < 3 || std::chrono::duration<double>(Clock::now() - start).count() < seconds; ++run) {
    const Clock::time_point begin = Clock::now();
    body();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

}  // namespace

const LimitsKernels& LimitsKernelsOf(Isa isa) {
  return ForIsa(isa, isa_avx2::kLimitsKernels, isa_avx512::kLimitsKernels, isa_avx512_bf16::kLimitsKernels);
}

Result<MachineLimits> MeasureLimits(const KernelContext& context, double seconds) {
  const LimitsKernels& kernels = LimitsKernelsOf(context.isa);
  const int threads = context.pool.threads();
  ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(kReadBytes));
  const int64_t part = kReadBytes / threads / (kStreams * 64) * (kStreams * 64);
  char* const data = buffer.As<char>().data();
  // Written first, by the thread that reads it: untouched memory is one shared page of zeros.
  context.pool.Run([&](int thread) { std::fill_n(data + thread * part, part, 1); });

  std::vector<float> floats(threads);
  std::vector<uint32_t> words(threads);
  MachineLimits limits;
  const double read = BestSeconds(seconds, [&] {
    context.pool.Run([&](int thread) { words[thread] = kernels.read(data + thread * part, part); });
  });
  limits.read_bytes = static_cast<double>(part * threads) / read;
  const auto operations = [&](float (*loop)(int64_t), int64_t a_step) {
    const double best =
        BestSeconds(seconds, [&] { context.pool.Run([&](int thread) { floats[thread] = loop(kSteps); }); });
    return static_cast<double>(kSteps * a_step * threads) / best;
  };
  limits.multiply_add = operations(kernels.multiply_add, kMultiplyAddOperations);
  // Whether the run uses it or not: some cores multiply faster without.
  ASSIGN_OR_RETURN(const Isa strongest, ParseIsa("auto"));
  const auto dot_bf16 = LimitsKernelsOf(strongest).dot_bf16;
  if (dot_bf16 != nullptr) limits.dot_bf16 = operations(dot_bf16, kDotBf16Operations);
  return limits;
}

}  // namespace plumbline

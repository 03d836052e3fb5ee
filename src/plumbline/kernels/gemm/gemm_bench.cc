// Speed of the matmul beside the limits of the machine, measured in the same run:
//
//   plumbline_bench_gemm [threads] [format or all] [rows or 0] [NxK or all] [isa] [bf16 or f32]
//
// Best of many short runs; with one thread processor time, so that other work on the machine disturbs less.
// Weights rotate through copies that exceed the caches. A line: shape, format, rows, GB/s of packed weight
// read (share of read bandwidth), GFLOP/s (share of the multiply-add peak).
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "plumbline/kernels/gemm/gemm.h"
#include "plumbline/kernels/gemm/gemm_plan.h"
#include "plumbline/kernels/gemm/gemm_testing.h"
#include "plumbline/kernels/limits/limits.h"

namespace plumbline {
namespace {

double Now(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// The best of several runs of `body`, for `seconds` in all.
template <typename Body>
double BestSeconds(const ThreadPool& pool, double seconds, Body&& body) {
  const clockid_t clock = pool.threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  double best = 1e30;
  const double start = Now(clock);
  for (int i = 0; i < 3 || Now(clock) - start < seconds; ++i) {
    const double begin = Now(clock);
    body();
    best = std::min(best, Now(clock) - begin);
  }
  return best;
}

void Measure(const KernelContext& context, const MachineLimits& limits, double peak, DType dtype,
             Compute compute, int64_t n, int64_t k, int64_t rows) {
  const int64_t leaf = k % 256 == 0 ? 256 : 192;
  if (leaf % Info(dtype).block_elements != 0) return;
  // The same rows over and over: speed does not depend on values, and random ones take long to make.
  const gemm_testing::Weight weight = gemm_testing::PlainWeight(dtype, 64, k, 1);
  std::vector<int32_t> order(n);
  for (int64_t i = 0; i < n; ++i) order[i] = static_cast<int32_t>(i % 64);
  const int64_t bytes = PackedWeight::PackedBytes(dtype, n, k, compute);
  const int64_t copies = std::clamp<int64_t>((int64_t{128} << 20) / bytes, 1, 64);
  std::vector<PackedWeight> packed;
  for (int64_t i = 0; i < copies; ++i) {
    packed.push_back(PackedWeight::Pack(context, weight.tensor, compute, leaf, order).value());
  }
  const gemm_testing::Matrix x = gemm_testing::RandomMatrix(rows, k, 2);
  gemm_testing::Matrix y(rows, n);
  PackedActivations activations;
  const int64_t calls = std::max<int64_t>(1, static_cast<int64_t>(1e8 / (2.0 * n * k * rows + 30.0 * bytes)));
  int64_t next = 0;
  const double best = BestSeconds(context.pool, 0.2,
                                  [&] {
                                    for (int64_t i = 0; i < calls; ++i) {
                                      static_cast<void>(activations.Pack(context, x.view, compute));
                                      const GemmJob job = {.weight = &packed[next++ % copies], .y = y.view};
                                      Gemm(context, activations, {&job, 1});
                                    }
                                  }) /
                      static_cast<double>(calls);
  const double rate = static_cast<double>(bytes) / best;
  const double flops = 2.0 * n * k * rows / best;
  fmt::print("{:>6} x {:<5} {:<5} rows {:<4} {:7.1f} GB/s ({:3.0f} %) {:8.1f} GFLOP/s ({:3.0f} %)\n", n, k,
             Info(dtype).name, rows, rate * 1e-9, 100 * rate / limits.read_bytes, flops * 1e-9,
             100 * flops / peak);
}

int Main(int argc, char** argv) {
  const std::string format = argc > 2 ? argv[2] : "all";
  const int64_t only_rows = argc > 3 ? std::atoll(argv[3]) : 0;
  const std::string shape = argc > 4 ? argv[4] : "all";
  const Result<Isa> isa = ParseIsa(argc > 5 ? argv[5] : "auto");
  if (!isa.has_value()) {
    fmt::print(stderr, "{}\n", isa.error().message);
    return 2;
  }
  const Compute compute = ParseCompute(argc > 6 ? argv[6] : "bf16").value_or(Compute::kBf16);
  ThreadPool pool(argc > 1 ? std::max(1, std::atoi(argv[1])) : 2);
  const KernelContext context = {pool, *isa};
  const MachineLimits limits = MeasureLimits(context, 0.1).value();
  const double peak = UsesPairs(*isa, compute) ? limits.dot_bf16 : limits.multiply_add;
  fmt::print("{} threads, {}, {}: read {:.1f} GB/s, multiply-add {:.1f} GFLOP/s\n", pool.threads(),
             Name(*isa), Name(compute), limits.read_bytes * 1e-9, peak * 1e-9);
  constexpr int64_t kShapes[][2] = {{576, 576},   {1536, 576},  {576, 1536},
                                    {49152, 576}, {2048, 2048}, {2048, 8192}};
  for (const DType dtype : gemm_testing::kWeightTypes) {
    if (format != "all" && format != Info(dtype).name) continue;
    for (const auto& [n, k] : kShapes) {
      if (k % Info(dtype).block_elements != 0) continue;
      if (shape != "all" && shape != fmt::format("{}x{}", n, k)) continue;
      for (const int64_t rows : {1, 2, 4, 8, 16, 32, 128, 512}) {
        if (only_rows == 0 || rows == only_rows) Measure(context, limits, peak, dtype, compute, n, k, rows);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace plumbline

int main(int argc, char** argv) { return plumbline::Main(argc, argv); }

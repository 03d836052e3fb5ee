// Speed of fused attention beside the limits of the machine, measured in the same run:
//
//   plumbline_bench_fused_attention [threads] [bf16, f16 or f32] [heads] [head size] [isa] [seconds a line]
//   [floats or pairs]
//
// Best of several runs of the causal and the full pass over one batch row. Operations are counted over
// allowed pairs: 4 a dim forward, 10 backward (the products of one pass, whatever is computed again). The
// share is of the machine's vdpbf16ps rate (multiply-adds for float32 and float16). The last column is what
// max_logit adds.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>

#include "plumbline/kernels/fused_attention/fused_attention.h"
#include "plumbline/kernels/fused_attention/fused_elements.h"
#include "plumbline/kernels/limits/limits.h"

namespace plumbline {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Setup {
  DType dtype = DType::kBF16;
  int64_t heads = 8;
  int64_t dim = 128;
  double seconds = 0.5;
  double peak = 0;
  FusedProducts products = FusedProducts::kAuto;
};

class Bench {
 public:
  Bench(const KernelContext& context, const Setup& setup, int64_t tokens, bool causal)
      : context_(context), setup_(setup), tokens_(tokens) {
    shape_ = {setup.dtype, 1, tokens, tokens, setup.heads, setup.heads, setup.dim, setup.dim};
    options_.scale = 1.0f / std::sqrt(static_cast<float>(setup.dim));
    options_.causal = causal;
    options_.products = setup.products;
    std::mt19937 random(1);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    for (std::vector<float>& array : arrays_) {
      array.resize(tokens * setup.heads * setup.dim);
      for (size_t i = 0; i < array.size(); ++i)
        StoreFusedElement(setup.dtype, array.data(), i, uniform(random));
    }
    lse_.resize(setup.heads * tokens);
    max_logit_.resize(setup.heads);
  }

  void Print() {
    double plain = 1e30, with = 1e30, backward = 1e30;
    const double start = Now();
    for (int i = 0; i < 3 || Now() - start < setup_.seconds; ++i) {
      plain = std::min(plain, Time([&] { Forward(nullptr); }));
      with = std::min(with, Time([&] { Forward(max_logit_.data()); }));
      if (i % 2 == 0) backward = std::min(backward, Time([&] { Backward(); }));
    }
    const double pairs = options_.causal ? 0.5 * tokens_ * (tokens_ + 1) : 1.0 * tokens_ * tokens_;
    const double unit = pairs * setup_.dim * setup_.heads;
    const auto rate = [&](double operations, double seconds) {
      return fmt::format("{:9.2f} ms {:7.1f} GFLOP/s ({:3.0f} %)", 1e3 * seconds,
                         1e-9 * operations * unit / seconds, 100 * operations * unit / seconds / setup_.peak);
    };
    fmt::print("{:5} tokens {}  forward {}  backward {}  max_logit {:+.2f} %\n", tokens_,
               options_.causal ? "causal" : "full  ", rate(4, plain), rate(10, backward),
               100 * (with / plain - 1));
  }

 private:
  template <typename Body>
  static double Time(Body&& body) {
    const double begin = Now();
    body();
    return Now() - begin;
  }
  template <typename T>
  FusedOperand<T> Operand(int i) {
    return {arrays_[i].data(), 0, setup_.heads * setup_.dim, setup_.dim};
  }
  FusedAttentionInputs Inputs() {
    return {.q = Operand<const void>(0), .k = Operand<const void>(1), .v = Operand<const void>(2)};
  }
  void Forward(float* max_logit) {
    static_cast<void>(FusedAttention(context_, shape_, options_, Inputs(),
                                     {.out = Operand<void>(3), .lse = lse_.data(), .max_logit = max_logit}));
  }
  void Backward() {
    static_cast<void>(FusedAttentionGrad(
        context_, shape_, options_, Inputs(),
        {.out = Operand<const void>(3), .d_out = Operand<const void>(4), .lse = lse_.data()},
        {.dq = Operand<void>(5), .dk = Operand<void>(6), .dv = Operand<void>(7)}));
  }

  const KernelContext& context_;
  const Setup& setup_;
  const int64_t tokens_;
  FusedAttentionShape shape_;
  FusedAttentionOptions options_;
  std::vector<float> arrays_[8];  // q, k, v, out, d_out, dq, dk, dv; room for float32
  std::vector<float> lse_, max_logit_;
};

int Main(int argc, char** argv) {
  const std::string type = argc > 2 ? argv[2] : "bf16";
  Setup setup;
  setup.dtype = type == "f32" ? DType::kF32 : type == "f16" ? DType::kF16 : DType::kBF16;
  if (argc > 3) setup.heads = std::max(1, std::atoi(argv[3]));
  if (argc > 4) setup.dim = std::max(1, std::atoi(argv[4]));
  if (argc > 6) setup.seconds = std::atof(argv[6]);
  if (argc > 7) {
    setup.products = std::string(argv[7]) == "pairs" ? FusedProducts::kPairs : FusedProducts::kFloats;
  }
  const Result<Isa> isa = ParseIsa(argc > 5 ? argv[5] : "auto");
  if (!isa.has_value()) {
    fmt::print(stderr, "{}\n", isa.error().message);
    return 2;
  }
  ThreadPool pool(argc > 1 ? std::max(1, std::atoi(argv[1])) : 2);
  const KernelContext context = {pool, *isa};
  const Result<MachineLimits> limits = MeasureLimits(context, 0.2);
  if (!limits.has_value()) {
    fmt::print(stderr, "{}\n", limits.error().message);
    return 1;
  }
  const bool dot = setup.dtype == DType::kBF16 && limits->dot_bf16 > 0;
  setup.peak = dot ? limits->dot_bf16 : limits->multiply_add;
  fmt::print("{} threads, {}, {}, {} heads of {}: vdpbf16ps {:.1f}, multiply-add {:.1f} GFLOP/s\n",
             pool.threads(), Name(*isa), Info(setup.dtype).name, setup.heads, setup.dim,
             limits->dot_bf16 * 1e-9, limits->multiply_add * 1e-9);
  for (const int64_t tokens : {512, 1024, 2048, 4096}) {
    for (const bool causal : {false, true}) Bench(context, setup, tokens, causal).Print();
  }
  return 0;
}

}  // namespace
}  // namespace plumbline

int main(int argc, char** argv) { return plumbline::Main(argc, argv); }

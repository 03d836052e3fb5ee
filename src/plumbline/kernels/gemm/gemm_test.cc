#include "plumbline/kernels/gemm/gemm.h"

#include <gtest/gtest.h>

#include <limits>

#include "plumbline/base/float_env.h"
#include "plumbline/kernels/gemm/gemm_testing.h"
#include "plumbline/kernels/gemm/gemm_twin.h"

namespace plumbline {
namespace {

using namespace gemm_testing;  // NOLINT(google-build-using-namespace)

constexpr int64_t kRows[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 31, 64};
constexpr int kThreads[] = {1, 2, 3, 5};
constexpr int kOneThread[] = {1};

struct Case {
  DType dtype;
  Compute compute;
  int64_t n;
  int64_t k;
  int64_t leaf;
  bool plain = true;
};

std::string Name(const Case& c) {
  return fmt::format("{} {} n {} k {} leaf {}", Info(c.dtype).name, Name(c.compute), c.n, c.k, c.leaf);
}

// Every row count and instruction set against the twin, computed once for the most rows; thread counts in
// turn.
void ExpectMatchesTwin(const Case& c, std::span<const int64_t> rows, std::span<const int> threads) {
  int64_t most = 0;
  for (const int64_t m : rows) most = std::max(most, m);
  const Weight weight = c.plain ? PlainWeight(c.dtype, c.n, c.k, 11) : RandomWeight(c.dtype, c.n, c.k, 11);
  const Matrix x = RandomMatrix(most, c.k, 12);
  Matrix want(most, c.n);
  {
    ScopedFloatEnv env;
    const std::vector<float> values = gemm_twin::WeightValues(weight.tensor, c.compute);
    gemm_twin::Gemm(x.view, values.data(), c.leaf, c.compute, nullptr, false, want.view);
  }
  for (const Isa isa : SupportedIsas()) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t m = rows[i];
      ThreadPool pool(threads[i % threads.size()]);
      const KernelContext context = {pool, isa};
      const Result<PackedWeight> packed = PackedWeight::Pack(context, weight.tensor, c.compute, c.leaf);
      ASSERT_TRUE(packed.has_value()) << packed.error().message;
      ASSERT_TRUE(!IsQuantized(c.dtype) || !c.plain || packed->decoding() != Decoding::kAny);
      PackedActivations activations;
      ASSERT_TRUE(activations.Pack(context, x.view.Rows(0, m), c.compute).has_value());
      Matrix got(m, c.n);
      const GemmJob job = {.weight = &*packed, .y = got.view};
      Gemm(context, activations, {&job, 1});
      ASSERT_EQ(FirstDifference(got.view, want.view.Rows(0, m)), "")
          << Name(c) << " m " << m << " " << Name(isa) << " threads " << pool.threads();
      for (int64_t r = 0; r < m; ++r) ASSERT_EQ(got.view.Row(r)[c.n], -7.5f) << "wrote past column n";
    }
  }
}

TEST(Gemm, EveryFormatMatchesTheTwin) {
  for (const DType dtype : kWeightTypes) {
    for (const Compute compute : kComputes) {
      const int64_t block = Info(dtype).block_elements;
      const int64_t k = block == 1 ? 611 : block == 32 ? 608 : 1280;
      const int64_t leaf = block == 256 ? 256 : 128;
      ExpectMatchesTwin({dtype, compute, 77, k, leaf}, kRows, kThreads);
      if (IsQuantized(dtype)) ExpectMatchesTwin({dtype, compute, 77, k, leaf, false}, kRows, kOneThread);
    }
  }
}

TEST(Gemm, EveryLeafLengthMatchesTheTwin) {
  constexpr int64_t kFew[] = {1, 3, 14};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ4_1, DType::kQ8_0}) {
    for (const Compute compute : kComputes) {
      for (const int64_t leaf : {32, 64, 192, 256}) {
        for (const int64_t k : {32, 192, 576, 1536})
          ExpectMatchesTwin({dtype, compute, 33, k, leaf}, kFew, kOneThread);
      }
    }
  }
}

// A weight packed for one instruction set is multiplied on any other.
TEST(Gemm, EveryInstructionSetReadsEveryOrder) {
  constexpr int64_t kN = 45, kM = 19;
  for (const DType dtype : kWeightTypes) {
    const int64_t k = Info(dtype).block_elements == 256 ? 512 : 96;
    const Weight weight = PlainWeight(dtype, kN, k, 13);
    const Matrix x = RandomMatrix(kM, k, 14);
    for (const Compute compute : kComputes) {
      Matrix want(kM, kN);
      {
        ScopedFloatEnv env;
        const std::vector<float> values = gemm_twin::WeightValues(weight.tensor, compute);
        gemm_twin::Gemm(x.view, values.data(), 256, compute, nullptr, false, want.view);
      }
      for (const Isa packing : SupportedIsas()) {
        ThreadPool pool(1);
        const PackedWeight packed = PackedWeight::Pack({pool, packing}, weight.tensor, compute, 256).value();
        for (const Isa isa : SupportedIsas()) {
          for (const int64_t m : {int64_t{1}, kM}) {
            PackedActivations activations;
            ASSERT_TRUE(activations.Pack({pool, isa}, x.view.Rows(0, m), compute).has_value());
            Matrix got(m, kN);
            const GemmJob job = {.weight = &packed, .y = got.view};
            Gemm({pool, isa}, activations, {&job, 1});
            ASSERT_EQ(FirstDifference(got.view, want.view.Rows(0, m)), "")
                << Info(dtype).name << " " << Name(compute) << " packed for " << Name(packing) << " on "
                << Name(isa);
          }
        }
      }
    }
  }
}

TEST(Gemm, OddShapesMatchTheTwin) {
  constexpr int64_t kFew[] = {1, 2, 9};
  for (const Compute compute : kComputes) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t n : {1, 15, 16, 17, 31, 32, 48, 129, 260}) {
        for (const int64_t k : {1, 2, 3, 65}) ExpectMatchesTwin({dtype, compute, n, k, 2}, kFew, kOneThread);
      }
    }
  }
}

TEST(Gemm, BiasAndAccumulateComeLast) {
  const Weight weight = RandomWeight(DType::kF32, 45, 70, 1);
  const Matrix x = RandomMatrix(7, 70, 2);
  const Matrix bias = RandomMatrix(1, 45, 3);
  for (const Isa isa : SupportedIsas()) {
    ThreadPool pool(2);
    const KernelContext context = {pool, isa};
    const PackedWeight packed = PackedWeight::Pack(context, weight.tensor, Compute::kBf16, 64).value();
    PackedActivations activations;
    ASSERT_TRUE(activations.Pack(context, x.view, Compute::kBf16).has_value());
    for (const bool accumulate : {false, true}) {
      Matrix want = RandomMatrix(7, 45, 4);
      Matrix got = RandomMatrix(7, 45, 4);
      {
        ScopedFloatEnv env;
        const std::vector<float> values = gemm_twin::WeightValues(weight.tensor, Compute::kBf16);
        gemm_twin::Gemm(x.view, values.data(), 64, Compute::kBf16, bias.view.data, accumulate, want.view);
      }
      const GemmJob job = {&packed, got.view, bias.view.data, accumulate};
      Gemm(context, activations, {&job, 1});
      EXPECT_EQ(FirstDifference(got.view, want.view), "");
    }
  }
}

// vdpbf16ps, and the chain in general, over the full range of bf16: subnormals, infinities and NaN too.
TEST(Gemm, EveryBitPatternMatchesTheTwin) {
  constexpr int64_t kN = 512, kK = 6, kM = 64;
  for (uint64_t round = 0; round < 24; ++round) {
    std::mt19937_64 random(round);
    Weight weight = RandomWeight(DType::kBF16, kN, kK, 5);
    for (size_t i = 1; i < weight.bytes.size(); ++i) weight.bytes[i] = static_cast<uint8_t>(random());
    Matrix x(kM, kK);
    for (int64_t r = 0; r < kM; ++r) {
      for (int64_t c = 0; c < kK; ++c)
        x.view.Row(r)[c] = std::bit_cast<float>(static_cast<uint32_t>(random()));
    }
    // Weights near the reciprocal of x and small exponents, so that sums cancel and underflow.
    for (int64_t i = 0; round % 2 == 1 && i < kN * kK; ++i) {
      const float wi = std::ldexp(1.0f + static_cast<float>(random() % 256) / 128.0f,
                                  static_cast<int>(random() % 16) - 120) *
                       (random() % 2 == 0 ? 1.0f : -1.0f);
      const bf16_bits h = F32ToBf16(wi);
      std::memcpy(weight.bytes.data() + 1 + 2 * i, &h, sizeof h);
      x.view.Row(i % kM)[i % kK] = std::ldexp(wi, static_cast<int>(random() % 8) + 112);
    }
    for (const Compute compute : kComputes) {
      Matrix want(kM, kN);
      {
        ScopedFloatEnv env;
        const std::vector<float> values = gemm_twin::WeightValues(weight.tensor, compute);
        gemm_twin::Gemm(x.view, values.data(), 6, compute, nullptr, false, want.view);
      }
      for (const Isa isa : SupportedIsas()) {
        ThreadPool pool(1);
        const KernelContext context = {pool, isa};
        const PackedWeight packed = PackedWeight::Pack(context, weight.tensor, compute, 6).value();
        PackedActivations activations;
        ASSERT_TRUE(activations.Pack(context, x.view, compute).has_value());
        Matrix got(kM, kN);
        const GemmJob job = {.weight = &packed, .y = got.view};
        Gemm(context, activations, {&job, 1});
        ASSERT_EQ(FirstDifference(got.view, want.view), "") << Name(isa) << " " << Name(compute);
      }
    }
  }
}

}  // namespace
}  // namespace plumbline

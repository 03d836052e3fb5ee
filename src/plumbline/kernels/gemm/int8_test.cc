#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "plumbline/base/float_env.h"
#include "plumbline/kernels/gemm/gemm.h"
#include "plumbline/kernels/gemm/gemm_kernels.h"
#include "plumbline/kernels/gemm/gemm_testing.h"
#include "plumbline/kernels/gemm/int8_twin.h"
#include "plumbline/kernels/gemm/packed_row.h"

namespace plumbline {
namespace {

using namespace gemm_testing;  // NOLINT(google-build-using-namespace)

std::vector<DType> QuantizedTypes() {
  std::vector<DType> types;
  for (const DType dtype : kWeightTypes) {
    if (IsQuantized(dtype)) types.push_back(dtype);
  }
  return types;
}

Matrix Multiply(const KernelContext& context, const RawTensor& weight, int64_t leaf,
                MatrixView<const float> x) {
  const PackedWeight packed = PackedWeight::Pack(context, weight, Compute::kInt8, leaf).value();
  EXPECT_EQ(packed.compute(), Compute::kInt8);
  PackedActivations activations;
  EXPECT_TRUE(activations.Pack(context, x, Compute::kInt8).has_value());
  Matrix y(x.rows, packed.n());
  const GemmJob job = {.weight = &packed, .y = y.view};
  Gemm(context, activations, {&job, 1});
  for (int64_t r = 0; r < x.rows; ++r) EXPECT_EQ(y.view.Row(r)[packed.n()], -7.5f) << "wrote past column n";
  return y;
}

TEST(Int8Gemm, MatchesTheTwin) {
  constexpr int64_t kRows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 24, 31};
  constexpr int kThreads[] = {1, 2, 3, 5};
  for (const DType dtype : QuantizedTypes()) {
    const bool k_format = Info(dtype).block_elements == 256;
    for (const int64_t leaf : k_format ? std::vector<int64_t>{256} : std::vector<int64_t>{32, 96, 256}) {
      for (const int64_t n : {16, 33, 77}) {
        const int64_t k = k_format ? 1280 : 608;
        const Weight weight = RandomWeight(dtype, n, k, 21);
        const Matrix x = RandomMatrix(31, k, 22);
        Matrix want(31, n);
        {
          ScopedFloatEnv env;
          int8_twin::Gemm(x.view, weight.tensor, leaf, want.view);
        }
        int i = 0;
        for (const Isa isa : SupportedIsas()) {
          for (const int64_t m : kRows) {
            ThreadPool pool(kThreads[i++ % 4]);
            const Matrix got = Multiply({pool, isa}, weight.tensor, leaf, x.view.Rows(0, m));
            ASSERT_EQ(FirstDifference(got.view, want.view.Rows(0, m)), "")
                << Info(dtype).name << " n " << n << " leaf " << leaf << " m " << m << " " << Name(isa);
          }
        }
      }
    }
  }
}

// Of the tables that Gemm does not choose on this machine too: one without vpdpbusd where there is that.
TEST(Int8Gemm, TilesOfEveryInstructionSetMatchTheTwin) {
  constexpr int64_t k = 768, n = 32;
  for (const DType dtype : QuantizedTypes()) {
    const Weight weight = RandomWeight(dtype, n, k, 41);
    const Matrix x = RandomMatrix(kMaxQuadRows, k, 42);
    Matrix want(kMaxQuadRows, n);
    ScopedFloatEnv env;
    int8_twin::Gemm(x.view, weight.tensor, 256, want.view);
    for (const Isa isa : SupportedIsas()) {
      const QuadKernels& quads =
          ForIsa(isa, isa_avx2::kQuadKernels, isa_avx512::kQuadKernels, isa_avx512_bf16::kQuadKernels);
      const ActivationKernels& activations =
          ForIsa(isa, isa_avx2::kActivations, isa_avx512::kActivations, isa_avx512_bf16::kActivations);
      ThreadPool pool(1);
      const PackedWeight packed = PackedWeight::Pack({pool, isa}, weight.tensor, Compute::kInt8, 256).value();
      const auto format = static_cast<int>(packed.format());
      std::vector<float> decoded(k * kPanel);
      const DecodeFn decode = quads.decode[format];
      EXPECT_EQ(decode == nullptr, Info(dtype).name == "q8_0");
      if (decode != nullptr) decode(packed.Panel(0), k, decoded.data());
      for (int64_t m = 1; m <= kMaxQuadRows; ++m) {
        std::vector<uint32_t> words(k / 32 * kQuadWords * m);
        activations.to_quads(x.view.Row(0), x.view.stride, m, k, words.data());
        for (const TileFn tile : {quads.tile[format][m - 1], quads.decoded[format][m - 1]}) {
          if (tile == nullptr) continue;
          Matrix got(m, n);
          tile({.x = words.data(),
                .x_stride = m,
                .w = packed.Panel(0),
                .decoded = decoded.data(),
                .panel_stride = 0,
                .k = k,
                .leaf = 256,
                .y = got.view.Row(0),
                .y_stride = got.view.stride,
                .columns = n,
                .bias = nullptr,
                .accumulate = false});
          ASSERT_EQ(FirstDifference(got.view, want.view.Rows(0, m)), "")
              << Info(dtype).name << " m " << m << " " << Name(isa);
        }
      }
    }
  }
}

// Codes and activations at both ends of their ranges fill every sum of the kernels to its brim.
TEST(Int8Gemm, ExtremesDoNotOverflow) {
  for (const DType dtype : QuantizedTypes()) {
    const int64_t k = Info(dtype).block_elements == 256 ? 512 : 64;
    for (const uint8_t byte : {0x00, 0xff, 0x80, 0x7f}) {
      Weight weight = RandomWeight(dtype, 40, k, 23);
      const Weight scales = RandomWeight(dtype, 40, k, 23);
      std::fill(weight.bytes.begin(), weight.bytes.end(), byte);
      const DTypeInfo& info = Info(dtype);
      for (int64_t b = 0; b < weight.tensor.Elements() / info.block_elements; ++b) {
        for (const int at : ScaleOffsets(dtype)) {
          const int64_t from = 1 + b * info.block_bytes + at;
          std::copy_n(scales.bytes.begin() + from, 2, weight.bytes.begin() + from);
        }
      }
      weight.tensor.data = weight.bytes.data() + 1;
      constexpr int64_t kRows = 30;
      Matrix x(kRows, k);
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t i = 0; i < k; ++i)
          x.view.Row(r)[i] = (r % 3 == 0 || (r % 3 == 1 && i % 2 == 0)) ? 3.5f : -3.5f;
      }
      Matrix want(kRows, 40);
      {
        ScopedFloatEnv env;
        int8_twin::Gemm(x.view, weight.tensor, 64 < k ? 256 : 64, want.view);
      }
      for (const Isa isa : SupportedIsas()) {
        ThreadPool pool(1);
        for (const int64_t m : {int64_t{1}, int64_t{9}, kRows}) {
          const Matrix got = Multiply({pool, isa}, weight.tensor, 64 < k ? 256 : 64, x.view.Rows(0, m));
          ASSERT_EQ(FirstDifference(got.view, want.view.Rows(0, m)), "")
              << info.name << " byte " << int{byte};
        }
      }
    }
  }
}

TEST(Int8Gemm, TinyInfiniteAndNanActivationsMatchTheTwin) {
  const Weight weight = PlainWeight(DType::kQ4_1, 35, 96, 24);
  Matrix x = RandomMatrix(7, 96, 25);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float odd[] = {
      0.0f, 0x1p-110f, 0x1p-99f, 3e38f, kInf, -kInf, std::numeric_limits<float>::quiet_NaN()};
  for (int64_t r = 0; r < 7; ++r) {
    for (int64_t i = 32; i < 64; ++i) x.view.Row(r)[i] = odd[r] * (odd[r] < 1 && i % 3 == 0 ? 0.5f : 1.0f);
  }
  Matrix want(7, 35);
  {
    ScopedFloatEnv env;
    int8_twin::Gemm(x.view, weight.tensor, 96, want.view);
  }
  EXPECT_TRUE(std::isnan(want.view.Row(4)[0]) && std::isnan(want.view.Row(6)[0]));
  EXPECT_TRUE(std::isfinite(want.view.Row(0)[0]) && std::isfinite(want.view.Row(1)[0]));
  for (const Isa isa : SupportedIsas()) {
    ThreadPool pool(2);
    const Matrix got = Multiply({pool, isa}, weight.tensor, 96, x.view);
    EXPECT_EQ(FirstDifference(got.view, want.view), "") << Name(isa);
  }
}

// Against float64: each activation is at most half a step of its group off, and the rest is rounding.
TEST(Int8Gemm, IsWithinHalfAStepOfTheActivations) {
  for (const DType dtype : QuantizedTypes()) {
    const int64_t k = 512;
    const Weight weight = PlainWeight(dtype, 24, k, 26);
    const Matrix x = RandomMatrix(3, k, 27);
    ScopedFloatEnv env;
    const std::vector<float> values = gemm_twin::WeightValues(weight.tensor, Compute::kF32);
    Matrix got(3, 24);
    int8_twin::Gemm(x.view, weight.tensor, 256, got.view);
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t c = 0; c < 24; ++c) {
        double exact = 0, bound = 0, size = 0;
        for (int64_t i = 0; i < k; ++i) {
          const double w = values[static_cast<size_t>(c * k + i)];
          exact += w * x.view.Row(r)[i];
          size += std::fabs(w * x.view.Row(r)[i]);
          bound += std::fabs(w) * int8_twin::Quantize(x.view.Row(r) + i / 32 * 32).scale * 0.5;
        }
        EXPECT_NEAR(got.view.Row(r)[c], exact, bound * 1.0001 + size * 1e-4) << Info(dtype).name;
      }
    }
  }
}

TEST(Int8Gemm, RowsReadBackAreTheDequantisedOnes) {
  for (const DType dtype : QuantizedTypes()) {
    const Weight weight = RandomWeight(dtype, 37, 512, 31);
    ThreadPool pool(1);
    ScopedFloatEnv env;
    const PackedWeight packed =
        PackedWeight::Pack({pool, SupportedIsas().back()}, weight.tensor, Compute::kInt8, 256).value();
    const std::vector<float> want = gemm_twin::WeightValues(weight.tensor, Compute::kInt8);
    std::vector<float> row(512);
    for (int64_t r = 0; r < 37; ++r) {
      ReadPackedRow(packed, r, row.data());
      for (int64_t i = 0; i < 512; ++i) ASSERT_TRUE(SameBits(row[i], want[r * 512 + i])) << Info(dtype).name;
    }
  }
}

// One fork-join may hold weights that are integers and weights that are not.
TEST(Int8Gemm, WeightsWithoutIntegersAreComputedAsBf16) {
  const Weight integers = PlainWeight(DType::kQ8_0, 70, 128, 28);
  const Weight floats = RandomWeight(DType::kF32, 50, 128, 29);
  const Matrix x = RandomMatrix(14, 128, 30);
  Matrix want_integers(14, 70), want_floats(14, 50);
  {
    ScopedFloatEnv env;
    int8_twin::Gemm(x.view, integers.tensor, 128, want_integers.view);
    const std::vector<float> values = gemm_twin::WeightValues(floats.tensor, Compute::kBf16);
    gemm_twin::Gemm(x.view, values.data(), 128, Compute::kBf16, nullptr, false, want_floats.view);
  }
  for (const Isa isa : SupportedIsas()) {
    ThreadPool pool(2);
    const KernelContext context = {pool, isa};
    const PackedWeight first = PackedWeight::Pack(context, integers.tensor, Compute::kInt8, 128).value();
    const PackedWeight second = PackedWeight::Pack(context, floats.tensor, Compute::kInt8, 128).value();
    EXPECT_EQ(second.compute(), Compute::kBf16);
    for (const int64_t m : {1, 14}) {
      PackedActivations activations;
      ASSERT_TRUE(
          activations.Pack(context, x.view.Rows(0, m), std::array{first.compute(), second.compute()}));
      Matrix got_integers(m, 70), got_floats(m, 50);
      const GemmJob jobs[] = {{.weight = &first, .y = got_integers.view},
                              {.weight = &second, .y = got_floats.view}};
      Gemm(context, activations, jobs);
      EXPECT_EQ(FirstDifference(got_integers.view, want_integers.view.Rows(0, m)), "")
          << Name(isa) << " m " << m;
      EXPECT_EQ(FirstDifference(got_floats.view, want_floats.view.Rows(0, m)), "") << Name(isa) << " m " << m;
    }
  }
}

}  // namespace
}  // namespace plumbline

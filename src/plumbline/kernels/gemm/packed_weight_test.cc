#include "plumbline/kernels/gemm/packed_weight.h"

#include <gtest/gtest.h>

#include "plumbline/base/float_env.h"
#include "plumbline/kernels/gemm/gemm_kernels.h"
#include "plumbline/kernels/gemm/gemm_testing.h"
#include "plumbline/kernels/gemm/gemm_twin.h"
#include "plumbline/kernels/gemm/packed_row.h"

namespace plumbline {
namespace {

using namespace gemm_testing;  // NOLINT(google-build-using-namespace)

// Blocks whose scales are any float16 at all: zeros of both signs, denormals, infinities, NaN.
Weight AnyBits(DType dtype, int64_t n, int64_t k, uint64_t seed) {
  Weight weight = RandomWeight(dtype, n, k, seed);
  std::mt19937_64 random(seed);
  for (size_t i = 1; i < weight.bytes.size(); ++i) weight.bytes[i] = static_cast<uint8_t>(random());
  return weight;
}

const QuantKernels& QuantKernelsOf(Isa isa) {
  if (isa == Isa::kAvx512Bf16) return isa_avx512_bf16::kQuantKernels;
  return isa == Isa::kAvx512 ? isa_avx512::kQuantKernels : isa_avx2::kQuantKernels;
}

float PairValue(const uint32_t* pairs, int64_t k, int column) {
  const uint32_t pair = pairs[k / 2 * kPanel + column];
  return Bf16ToF32(static_cast<bf16_bits>(k % 2 == 0 ? pair >> 16 : pair));
}

// The exact decoder's values are the rounded ones.
template <typename Decode>
void ExpectExact(Decode&& decode, const void* panel, const std::vector<float>& rounded) {
  std::vector<float> values(rounded.size());
  decode(DecodeTarget::kRoundedExact)(panel, static_cast<int64_t>(values.size()) / kPanel, values.data());
  for (size_t i = 0; i < values.size(); ++i) ASSERT_TRUE(SameBits(values[i], rounded[i])) << i;
}

// Every row of the packed weight, read alone and decoded by panels, is the dequantised row.
void ExpectDecodes(const Weight& weight) {
  const DType dtype = weight.tensor.dtype;
  const int64_t n = weight.tensor.shape[0], k = weight.tensor.shape[1];
  ThreadPool pool(2);
  ScopedFloatEnv env;
  for (const Compute compute : kComputes) {
    const std::vector<float> values = gemm_twin::WeightValues(weight.tensor, compute);
    const std::vector<float> rounded = gemm_twin::WeightValues(weight.tensor, Compute::kBf16);
    for (const Isa isa : SupportedIsas()) {
      const PackedWeight packed = PackedWeight::Pack({pool, isa}, weight.tensor, compute, 256).value();
      std::vector<float> row(k);
      for (int64_t i = 0; i < n; ++i) {
        ReadPackedRow(packed, i, row.data());
        for (int64_t j = 0; j < k; ++j) ASSERT_TRUE(SameBits(row[j], values[i * k + j])) << Info(dtype).name;
      }
      if (!IsQuantized(packed.format())) continue;
      const QuantKernels& kernels = QuantKernelsOf(isa);
      const auto format = static_cast<int>(packed.format());
      std::vector<float> exact(k * kPanel), bf16(k * kPanel);
      std::vector<uint32_t> pairs(k / 2 * kPanel);
      for (int64_t panel = 0; panel < packed.panels(); ++panel) {
        const auto decode = [&](DecodeTarget target) {
          return kernels.decode[static_cast<int>(target)][format][static_cast<int>(packed.order())];
        };
        decode(compute == Compute::kF32 ? DecodeTarget::kFloats : DecodeTarget::kRounded)(packed.Panel(panel),
                                                                                          k, exact.data());
        const bool plain = packed.decoding() != Decoding::kAny;
        decode(plain ? DecodeTarget::kRoundedPlain : DecodeTarget::kRounded)(packed.Panel(panel), k,
                                                                             bf16.data());
        if (packed.decoding() == Decoding::kExact) ExpectExact(decode, packed.Panel(panel), bf16);
        const bool has_pairs = decode(DecodeTarget::kPairs) != nullptr;
        ASSERT_EQ(has_pairs, isa == Isa::kAvx512Bf16);
        if (has_pairs) decode(DecodeTarget::kPairs)(packed.Panel(panel), k, pairs.data());
        for (int c = 0; c < kPanel && panel * kPanel + c < n; ++c) {
          for (int64_t j = 0; j < k; ++j) {
            const int64_t at = (panel * kPanel + c) * k + j;
            ASSERT_TRUE(SameBits(exact[j * kPanel + c], values[at])) << Info(dtype).name << " " << Name(isa);
            ASSERT_TRUE(SameBits(bf16[j * kPanel + c], rounded[at])) << Info(dtype).name << " " << Name(isa);
            ASSERT_TRUE(!has_pairs || SameBits(PairValue(pairs.data(), j, c), rounded[at]))
                << Info(dtype).name << " " << Name(isa);
          }
        }
      }
    }
  }
}

TEST(PackedWeight, DecodesToTheDequantisedValues) {
  for (const DType dtype : kWeightTypes) {
    ExpectDecodes(RandomWeight(dtype, 67, 768, 1));
    ExpectDecodes(AnyBits(dtype, 128, 1024, 2));
    if (!IsQuantized(dtype)) continue;
    Weight plain = AnyBits(dtype, 128, 1024, 7);
    MakePlain(plain);
    ExpectDecodes(plain);
  }
}

// bf16 is packed as it lies but where one value is a denormal (a zero in bf16 arithmetic) or a NaN (quieted).
TEST(PackedWeight, SeesTheOneOddValueAmongPlainOnes) {
  ThreadPool pool(1);
  ScopedFloatEnv env;
  constexpr int64_t kRows = 40, kColumns = 70;
  for (const bf16_bits odd : {0x0001, 0x807f, 0x7f81, 0xff80, 0x8000}) {
    for (const auto& [row, column] : {std::pair<int64_t, int64_t>{0, 0}, {31, 1}, {33, 69}, {39, 64}}) {
      Weight weight = RandomWeight(DType::kBF16, kRows, kColumns, 5);
      std::memcpy(weight.bytes.data() + 1 + 2 * (row * kColumns + column), &odd, sizeof odd);
      weight.tensor.data = weight.bytes.data() + 1;
      for (const Compute compute : {Compute::kBf16, Compute::kF32}) {
        const std::vector<float> values = gemm_twin::WeightValues(weight.tensor, compute);
        const PackedWeight packed =
            PackedWeight::Pack({pool, Isa::kAvx2}, weight.tensor, compute, 256).value();
        std::vector<float> read(kColumns);
        for (int64_t r = 0; r < kRows; ++r) {
          ReadPackedRow(packed, r, read.data());
          ASSERT_EQ(std::memcmp(read.data(), &values[r * kColumns], kColumns * sizeof(float)), 0)
              << odd << " at " << row << " " << column << ", row " << r;
        }
      }
    }
  }
}

Decoding DecodingOf(const Weight& weight) {
  ThreadPool pool(1);
  RawTensor tensor = weight.tensor;
  tensor.data = weight.bytes.data() + 1;
  return PackedWeight::Pack({pool, SupportedIsas().back()}, tensor, Compute::kBf16, 256).value().decoding();
}

TEST(PackedWeight, IsPlainWhereEveryValueIsFiniteAndNoneIsMinusZero) {
  for (const DType dtype : kWeightTypes) {
    if (!IsQuantized(dtype)) continue;
    Weight weight = PlainWeight(dtype, 3, 512, 8);
    EXPECT_NE(DecodingOf(weight), Decoding::kAny) << Info(dtype).name;
    for (const int at : ScaleOffsets(dtype)) {
      for (const f16_bits bad : {f16_bits{0x7c00}, f16_bits{0xfc01}}) {
        Weight broken = weight;
        std::memcpy(broken.bytes.data() + 1 + Info(dtype).block_bytes + at, &bad, sizeof bad);
        EXPECT_EQ(DecodingOf(broken), Decoding::kAny);
      }
    }
    const bool minima = ScaleOffsets(dtype).size() == 2;
    const f16_bits below = 0x8001;
    std::memcpy(weight.bytes.data() + 1 + ScaleOffsets(dtype).front(), &below, sizeof below);
    EXPECT_EQ(DecodingOf(weight) == Decoding::kAny, minima) << Info(dtype).name;
  }
}

// Minima not far below their scales, as quantisers make them: what the exact decoders take.
Weight ExactWeight(DType dtype, int64_t n, int64_t k, uint64_t seed) {
  Weight weight = RandomWeight(dtype, n, k, seed);
  std::mt19937_64 random(seed);
  for (int64_t b = 0; b < n * k / 32; ++b) {
    auto exponent = static_cast<uint32_t>(1 + random() % 20);
    for (const int at : ScaleOffsets(dtype)) {
      auto scale = static_cast<f16_bits>((random() & 0x3ffu) | exponent << 10);
      if (at != 0) scale = static_cast<f16_bits>(scale | (random() & 0x8000u));
      std::memcpy(weight.bytes.data() + 1 + b * Info(dtype).block_bytes + at, &scale, sizeof scale);
      exponent += static_cast<uint32_t>(random() % 5);
    }
  }
  return weight;
}

TEST(PackedWeight, DecodesExactWeightsWithoutSubtracting) {
  for (const DType dtype : {DType::kQ4_1, DType::kQ8_0}) {
    Weight weight = ExactWeight(dtype, 96, 2048, 9);
    EXPECT_EQ(DecodingOf(weight), Decoding::kExact) << Info(dtype).name;
    ExpectDecodes(weight);
    // A minimum far below the scale; a zero scale under a negative code.
    const f16_bits scale = dtype == DType::kQ4_1 ? 0x7801 : 0x0000;
    const f16_bits minimum = 0x0401;
    uint8_t* block = weight.bytes.data() + 1;
    std::memcpy(block, &scale, sizeof scale);
    if (dtype == DType::kQ4_1) std::memcpy(block + 2, &minimum, sizeof minimum);
    if (dtype == DType::kQ8_0) block[5] = 0xff;
    EXPECT_EQ(DecodingOf(weight), Decoding::kPlain) << Info(dtype).name;
    ExpectDecodes(weight);
  }
}

// Every float16 scale with every code: 2048 blocks of 32 codes hold each scale once; q8_0 takes eight blocks.
TEST(PackedWeight, EveryScaleWithEveryCode) {
  for (const auto& [dtype, codes] : {std::pair{DType::kQ4_0, 16}, {DType::kQ5_0, 32}, {DType::kQ8_0, 256}}) {
    const int64_t blocks_per_scale = std::max(1, codes / 32);
    const int64_t k = 32 * blocks_per_scale * 16;
    const int64_t n = 65536 / 16;
    Weight weight = RandomWeight(dtype, n, k, 3);
    for (int64_t b = 0; b < n * k / 32; ++b) {
      uint8_t* block = weight.bytes.data() + 1 + b * Info(dtype).block_bytes;
      const auto scale = static_cast<f16_bits>(b / blocks_per_scale);
      std::memcpy(block, &scale, sizeof scale);
      const uint32_t high = dtype == DType::kQ5_0 ? 0xffff0000u : 0;
      if (dtype == DType::kQ5_0) std::memcpy(block + 2, &high, sizeof high);
      for (int i = 0; i < 16 && dtype != DType::kQ8_0; ++i) {
        block[Info(dtype).block_bytes - 16 + i] = static_cast<uint8_t>(i | i << 4);
      }
      for (int i = 0; i < 32 && dtype == DType::kQ8_0; ++i) {
        block[2 + i] = static_cast<uint8_t>(b % blocks_per_scale * 32 + i);
      }
    }
    ExpectDecodes(weight);
    MakePlain(weight);
    ExpectDecodes(weight);
  }
}

TEST(PackedWeight, TakesRowsInTheGivenOrder) {
  const Weight weight = RandomWeight(DType::kQ4_K, 50, 256, 4);
  const std::vector<int32_t> order = {49, 0, 7, 7, 31, 32};
  ThreadPool pool(1);
  ScopedFloatEnv env;
  const PackedWeight packed =
      PackedWeight::Pack({pool, SupportedIsas().back()}, weight.tensor, Compute::kF32, 256, order).value();
  ASSERT_EQ(packed.n(), 6);
  const std::vector<float> values = gemm_twin::WeightValues(weight.tensor, Compute::kF32);
  std::vector<float> row(256);
  for (size_t i = 0; i < order.size(); ++i) {
    ReadPackedRow(packed, static_cast<int64_t>(i), row.data());
    for (int64_t j = 0; j < 256; ++j) ASSERT_TRUE(SameBits(row[j], values[order[i] * 256 + j]));
  }
}

TEST(PackedWeight, AllocatesWhatItPromises) {
  ThreadPool pool(1);
  for (const DType dtype : kWeightTypes) {
    for (const Compute compute : kComputes) {
      for (const int64_t n : {1, 32, 33}) {
        const Weight weight = RandomWeight(dtype, n, 512, 5);
        const PackedWeight packed =
            PackedWeight::Pack({pool, SupportedIsas().back()}, weight.tensor, compute, 256).value();
        EXPECT_EQ(packed.bytes(), PackedWeight::PackedBytes(dtype, n, 512, compute)) << Info(dtype).name;
      }
    }
  }
  EXPECT_EQ(PackedWeight::PackedBytes(DType::kI32, 4, 4, Compute::kBf16), 0);
  EXPECT_EQ(PackedWeight::PackedBytes(DType::kQ4_1, 32, 32, Compute::kBf16), 640);
  EXPECT_EQ(PackedWeight::PackedBytes(DType::kF32, 32, 3, Compute::kF32), 4 * 32 * 4);
}

TEST(PackedWeight, RefusesWhatItCannotPack) {
  ThreadPool pool(1);
  const KernelContext context = {pool, SupportedIsas().back()};
  const Weight q4 = RandomWeight(DType::kQ4_0, 4, 64, 6);
  const auto error = [&](const RawTensor& tensor, int64_t leaf, std::vector<int32_t> order = {}) {
    const Result<PackedWeight> packed = PackedWeight::Pack(context, tensor, Compute::kBf16, leaf, order);
    EXPECT_FALSE(packed.has_value());
    return packed.has_value() ? std::string() : packed.error().message;
  };
  RawTensor odd_k = q4.tensor;
  odd_k.shape = {4, 48};
  RawTensor vector = q4.tensor;
  vector.shape = {64};
  RawTensor integers = q4.tensor;
  integers.dtype = DType::kI32;
  EXPECT_EQ(error(odd_k, 32), "weight columns: got 48, want a multiple of 32, the block of q4_0 (q4_0)");
  EXPECT_EQ(error(vector, 32), "weight shape: got 1 dimensions of 64 elements, want [n, k] (q4_0)");
  EXPECT_EQ(error(integers, 32), "weight type: got i32, want a floating-point or quantised type (q4_0)");
  EXPECT_EQ(error(q4.tensor, 48),
            "leaf of the reduction: got 48, want a multiple of 32 up to 256 (q4_0, q4_0)");
  EXPECT_NE(error(q4.tensor, 0), "");
  EXPECT_NE(error(q4.tensor, 288), "");
  EXPECT_EQ(error(q4.tensor, 32, {0, 4}), "row order: got row 4, want one of 0..3 (q4_0)");
}

}  // namespace
}  // namespace plumbline

#include <gtest/gtest.h>
#include <immintrin.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "plumbline/base/dtype.h"
#include "plumbline/base/float16.h"
#include "plumbline/base/float_env.h"
#include "plumbline/base/isa.h"
#include "plumbline/base/philox.h"
#include "plumbline/base/sha256.h"
#include "plumbline/base/thread_pool.h"

namespace plumbline {
namespace {

TEST(ThreadPool, RunsEveryThreadOnceAndEveryIndexOnce) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 200; ++round) {
      std::vector<int> calls(threads, 0);
      pool.Run([&](int thread) { ++calls[thread]; });
      EXPECT_EQ(calls, std::vector<int>(threads, 1));
      std::vector<int> visits(37, 0);
      pool.ParallelFor(37, [&](int64_t i, int) { ++visits[i]; });
      EXPECT_EQ(visits, std::vector<int>(37, 1));
    }
  }
}

TEST(ThreadPool, ComputesUnderTheContractsFloatEnvironment) {
  ThreadPool pool(3);
  const unsigned before = _mm_getcsr();
  std::atomic<int> flushed{0};
  pool.Run([&](int) {
    volatile float tiny = std::numeric_limits<float>::min();
    volatile float half = tiny * 0.5f;
    if (half == 0.0f) ++flushed;
  });
  EXPECT_EQ(flushed.load(), 3);
  EXPECT_EQ(_mm_getcsr() & 0xffc0u, before & 0xffc0u);
}

TEST(Float16, F16RoundTripsThroughTheHardwareConversion) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float want = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(static_cast<int>(h))));
    const float got = F16ToF32(static_cast<f16_bits>(h));
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << h;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want)) << h;
    }
  }
}

TEST(Float16, F32RoundsToF16AsTheHardwareDoes) {
  const ScopedFloatEnv env;
  for (uint64_t n = 0; n < (uint64_t{1} << 32); n += 997) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(n));
    const __m128i want = _mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT);
    ASSERT_EQ(F32ToF16(x), static_cast<f16_bits>(_mm_extract_epi16(want, 0))) << x;
  }
  for (uint32_t h = 0; h < 0x7c00; ++h) {  // halfway between neighbours, and a little off
    const uint32_t middle = std::bit_cast<uint32_t>(
        (F16ToF32(static_cast<f16_bits>(h)) + F16ToF32(static_cast<f16_bits>(h + 1))) / 2);
    for (const uint32_t bits : {middle - 1, middle, middle + 1}) {
      const float x = std::bit_cast<float>(bits);
      const __m128i want = _mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT);
      ASSERT_EQ(F32ToF16(x), static_cast<f16_bits>(_mm_extract_epi16(want, 0))) << x;
    }
  }
}

TEST(Float16, Bf16RoundsToNearestEven) {
  EXPECT_EQ(F32ToBf16(1.0f), 0x3f80);
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // tie to even
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(F32ToBf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(F32ToBf16(-std::numeric_limits<float>::denorm_min()), 0x8000);
  EXPECT_EQ(F32ToBf16(std::bit_cast<float>(0x7f800001u)), 0x7fc0);
}

TEST(Philox, MatchesThePublishedKnownAnswers) {
  // Random123's kat_vectors, philox4x32 10 rounds.
  using W = std::array<uint32_t, 4>;
  EXPECT_EQ(Philox4x32({0, 0}, {0, 0, 0, 0}), (W{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
            (W{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (W{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Sha256, MatchesTheStandardsExample) {
  Sha256 hash;
  hash.Update("abc", 3);
  EXPECT_EQ(hash.HexDigest(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(DType, SizesOfQuantisedRows) {
  EXPECT_EQ(ByteSize(DType::kQ4_1, 64), 40);
  EXPECT_EQ(ByteSize(DType::kQ6_K, 512), 420);
  EXPECT_EQ(ByteSize(DType::kBF16, 3), 6);
}

TEST(Isa, RefusesUnknownNamesAndAcceptsEachSupportedOne) {
  EXPECT_FALSE(ParseIsa("sse9").has_value());
  for (Isa isa : SupportedIsas()) EXPECT_EQ(ParseIsa(Name(isa)).value(), isa);
  EXPECT_EQ(ParseIsa("auto").value(), SupportedIsas().back());
}

}  // namespace
}  // namespace plumbline

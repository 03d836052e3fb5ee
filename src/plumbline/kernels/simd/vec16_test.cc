// Every operation of vec16.h on every instruction set against its definition for one lane.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "plumbline/base/float16.h"
#include "plumbline/base/float_env.h"
#include "plumbline/kernels/simd/find_vector_op.h"

namespace plumbline {
namespace {

float F(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t B(float x) { return std::bit_cast<uint32_t>(x); }
uint32_t Lanes(bool yes) { return yes ? 0xffffffffu : 0u; }
bool IsNanBits(uint32_t bits) { return (bits & 0x7fffffffu) > 0x7f800000u; }

// What denormals-are-zero makes of an operand.
float Daz(uint32_t bits) { return F((bits & 0x7f800000u) == 0 ? bits & 0x80000000u : bits); }

uint32_t Dot(uint32_t c, uint32_t a, uint32_t b) {
  const float first = std::fma(F(a & 0xffff0000u), F(b & 0xffff0000u), F(c));
  return B(std::fma(F(a << 16), F(b << 16), first));
}

uint32_t RoundToInt(float x) {
  if (!(std::fabs(x) < 0x1p31f)) return 0x80000000u;  // the "integer indefinite", also the right -2^31
  return static_cast<uint32_t>(static_cast<int32_t>(std::nearbyint(x)));
}

struct Definition {
  const char* name;
  uint32_t (*lane)(uint32_t a, uint32_t b, uint32_t c);
};

const Definition kDefinitions[] = {
    {"add", [](uint32_t a, uint32_t b, uint32_t) { return B(F(a) + F(b)); }},
    {"subtract", [](uint32_t a, uint32_t b, uint32_t) { return B(F(a) - F(b)); }},
    {"multiply", [](uint32_t a, uint32_t b, uint32_t) { return B(F(a) * F(b)); }},
    {"divide", [](uint32_t a, uint32_t b, uint32_t) { return B(F(a) / F(b)); }},
    {"fma", [](uint32_t a, uint32_t b, uint32_t c) { return B(std::fma(F(a), F(b), F(c))); }},
    {"fnma", [](uint32_t a, uint32_t b, uint32_t c) { return B(std::fma(-F(a), F(b), F(c))); }},
    {"sqrt", [](uint32_t a, uint32_t, uint32_t) { return B(std::sqrt(F(a))); }},
    {"max", [](uint32_t a, uint32_t b, uint32_t) { return B(Daz(a) > Daz(b) ? Daz(a) : Daz(b)); }},
    {"min", [](uint32_t a, uint32_t b, uint32_t) { return B(Daz(a) < Daz(b) ? Daz(a) : Daz(b)); }},
    {"max_nan",
     [](uint32_t a, uint32_t b, uint32_t) {
       if (IsNanBits(a) || IsNanBits(b)) return 0x7fc00000u;
       return B(Daz(a) > Daz(b) ? Daz(a) : Daz(b));
     }},
    {"less", [](uint32_t a, uint32_t b, uint32_t) { return Lanes(Daz(a) < Daz(b)); }},
    {"greater", [](uint32_t a, uint32_t b, uint32_t) { return Lanes(Daz(a) > Daz(b)); }},
    {"equal", [](uint32_t a, uint32_t b, uint32_t) { return Lanes(Daz(a) == Daz(b)); }},
    {"is_nan", [](uint32_t a, uint32_t, uint32_t) { return Lanes(IsNanBits(a)); }},
    {"mask_and",
     [](uint32_t a, uint32_t b, uint32_t c) { return Lanes(Daz(a) < Daz(b) && Daz(a) < Daz(c)); }},
    {"mask_or", [](uint32_t a, uint32_t b, uint32_t c) { return Lanes(Daz(a) < Daz(b) || Daz(a) < Daz(c)); }},
    {"mask_not", [](uint32_t a, uint32_t b, uint32_t) { return Lanes(!(Daz(a) < Daz(b))); }},
    {"select", [](uint32_t a, uint32_t b, uint32_t c) { return Daz(a) < Daz(b) ? b : c; }},
    {"add_int", [](uint32_t a, uint32_t b, uint32_t) { return a + b; }},
    {"subtract_int", [](uint32_t a, uint32_t b, uint32_t) { return a - b; }},
    {"and", [](uint32_t a, uint32_t b, uint32_t) { return a & b; }},
    {"or", [](uint32_t a, uint32_t b, uint32_t) { return a | b; }},
    {"xor", [](uint32_t a, uint32_t b, uint32_t) { return a ^ b; }},
    {"shift_left_5", [](uint32_t a, uint32_t, uint32_t) { return a << 5; }},
    {"shift_right_5", [](uint32_t a, uint32_t, uint32_t) { return a >> 5; }},
    {"shift_right_arith_5",
     [](uint32_t a, uint32_t, uint32_t) { return static_cast<uint32_t>(static_cast<int32_t>(a) >> 5); }},
    {"equal_int", [](uint32_t a, uint32_t b, uint32_t) { return Lanes(a == b); }},
    {"select_int", [](uint32_t a, uint32_t b, uint32_t c) { return a == b ? b : c; }},
    {"to_f32", [](uint32_t a, uint32_t, uint32_t) { return B(static_cast<float>(static_cast<int32_t>(a))); }},
    {"round_to_i32", [](uint32_t a, uint32_t, uint32_t) { return RoundToInt(F(a)); }},
    {"round", [](uint32_t a, uint32_t, uint32_t) { return B(std::nearbyint(Daz(a))); }},
    {"pair_high", [](uint32_t a, uint32_t, uint32_t) { return a & 0xffff0000u; }},
    {"pair_low", [](uint32_t a, uint32_t, uint32_t) { return a << 16; }},
    {"dot_pairs", [](uint32_t a, uint32_t b, uint32_t c) { return Dot(c, a, b); }},
    {"bf16_bits", [](uint32_t a, uint32_t, uint32_t) { return uint32_t{F32ToBf16(F(a))}; }},
    {"pack_pairs",
     [](uint32_t a, uint32_t b, uint32_t) { return uint32_t{F32ToBf16(F(a))} << 16 | F32ToBf16(F(b)); }},
};

// Results of arithmetic, where one NaN is as good as another: its payload depends on the order of operands,
// which is the compiler's choice.
bool IsArithmetic(std::string_view name) {
  for (const char* one :
       {"add", "subtract", "multiply", "divide", "fma", "fnma", "sqrt", "round", "dot_pairs"}) {
    if (name == one) return true;
  }
  return false;
}

using Words = std::vector<uint32_t>;

void ExpectDefinition(Isa isa, const Definition& definition, const Words& a, const Words& b, const Words& c) {
  const VectorOp* op = FindVectorOp(isa, definition.name);
  ASSERT_NE(op, nullptr) << definition.name;
  Words got(a.size());
  const ScopedFloatEnv env;
  op->run(a.data(), b.data(), c.data(), got.data(), static_cast<int64_t>(a.size()));
  for (size_t i = 0; i < a.size(); ++i) {
    const uint32_t want = definition.lane(a[i], b[i], c[i]);
    if (IsArithmetic(definition.name) && IsNanBits(got[i]) && IsNanBits(want)) continue;
    ASSERT_EQ(got[i], want) << Name(isa) << " " << definition.name << std::hex << " a=" << a[i]
                            << " b=" << b[i] << " c=" << c[i];
  }
}

class Vec16Test : public ::testing::Test {
 protected:
  Words Random(size_t count) {
    Words words(count);
    for (uint32_t& word : words) word = static_cast<uint32_t>(random_());
    return words;
  }

  std::mt19937 random_{20240613};
};

// Numbers where operations turn: zeros, denormals, the smallest normals, halves, 2^23, 2^31, infinities,
// NaNs.
constexpr uint32_t kCorners[] = {
    0x00000000, 0x00000001, 0x00400000, 0x007fffff, 0x00800000, 0x00800001, 0x3effffff, 0x3f000000,
    0x3f000001, 0x3f7fffff, 0x3f800000, 0x3fc00000, 0x40200000, 0x4affffff, 0x4b000000, 0x4b000001,
    0x4effffff, 0x4f000000, 0x4f000001, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff,
};

TEST_F(Vec16Test, EveryOperationOnCornersAndRandomBits) {
  Words a, b, c;
  for (uint32_t x : kCorners) {
    for (uint32_t y : kCorners) {
      for (uint32_t z : kCorners) {
        for (uint32_t signs = 0; signs < 8; ++signs) {
          a.push_back(x | (signs & 1) << 31);
          b.push_back(y | (signs & 2) << 30);
          c.push_back(z | (signs & 4) << 29);
        }
      }
    }
  }
  for (int i = 0; i < 1 << 17; ++i) {
    a.push_back(static_cast<uint32_t>(random_()));
    b.push_back(i % 16 == 0 ? a.back() : static_cast<uint32_t>(random_()));
    c.push_back(static_cast<uint32_t>(random_()));
  }
  ASSERT_EQ(a.size() % 16, 0u);
  for (Isa isa : SupportedIsas()) {
    for (const Definition& definition : kDefinitions) ExpectDefinition(isa, definition, a, b, c);
  }
}

// The bf16 dot instruction is the two fused multiply-adds of the numerics contract, section 3: over all
// exponents, and where sums cancel or products reach the smallest normal number.
TEST_F(Vec16Test, DotPairsIsTwoFusedMultiplyAdds) {
  const Definition dot{"dot_pairs", [](uint32_t a, uint32_t b, uint32_t c) { return Dot(c, a, b); }};
  for (int round = 0; round < 12; ++round) {
    const Words a = Random(1 << 18);
    Words b = Random(a.size());
    Words c = Random(a.size());
    for (size_t i = 0; i < a.size(); ++i) {
      const uint32_t exponent_a = a[i] >> 23 & 0xff;
      if (round % 3 == 1) {
        c[i] = B(-F(a[i] & 0xffff0000u) * F(b[i] & 0xffff0000u)) ^ (c[i] & 0x1ff);
      } else if (round % 3 == 2) {
        b[i] = (b[i] & 0x807fffffu) | ((129 - exponent_a + b[i] % 5) & 0xff) << 23;
        c[i] = (c[i] & 0x81ffffffu);
      }
    }
    for (Isa isa : SupportedIsas()) ExpectDefinition(isa, dot, a, b, c);
  }
}

TEST_F(Vec16Test, Bf16OfEveryHighHalf) {
  Words a;
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) a.push_back(high << 16 | low);
    for (int i = 0; i < 2; ++i) a.push_back(high << 16 | (static_cast<uint32_t>(random_()) & 0xffffu));
  }
  Words b(a.rbegin(), a.rend());
  for (Isa isa : SupportedIsas()) {
    for (const Definition& definition : kDefinitions) {
      const std::string_view name = definition.name;
      if (name == "bf16_bits" || name == "pack_pairs") ExpectDefinition(isa, definition, a, b, a);
    }
  }
}

TEST_F(Vec16Test, TreeSumAndMaxLane) {
  const Words a = Random(16 << 12);
  for (Isa isa : SupportedIsas()) {
    Words sum(a.size()), max(a.size());
    const ScopedFloatEnv env;
    FindVectorOp(isa, "tree_sum")
        ->run(a.data(), a.data(), a.data(), sum.data(), static_cast<int64_t>(a.size()));
    FindVectorOp(isa, "max_lane")
        ->run(a.data(), a.data(), a.data(), max.data(), static_cast<int64_t>(a.size()));
    for (size_t i = 0; i < a.size(); i += 16) {
      std::array<float, 16> lane;
      for (size_t t = 0; t < 16; ++t) lane[t] = F(a[i + t]);
      float want_max = -std::numeric_limits<float>::infinity();
      for (float x : lane)
        want_max = (want_max != want_max || x != x) ? want_max + x : std::fmax(want_max, x);
      const auto node = [&](size_t t) { return lane[2 * t] + lane[2 * t + 1]; };
      const auto pair = [&](size_t t) { return node(2 * t) + node(2 * t + 1); };
      const float want_sum = (pair(0) + pair(1)) + (pair(2) + pair(3));
      if (want_sum == want_sum || !IsNanBits(sum[i])) {
        ASSERT_EQ(sum[i], B(want_sum)) << Name(isa);
      }
      if (want_max == want_max || !IsNanBits(max[i])) {
        ASSERT_EQ(max[i], B(want_max)) << Name(isa);
      }
    }
  }
}

TEST_F(Vec16Test, PartialLoadsAndStores) {
  const long page = sysconf(_SC_PAGESIZE);
  auto* pages = static_cast<char*>(mmap(nullptr, static_cast<size_t>(2 * page), PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(mprotect(pages + page, static_cast<size_t>(page), PROT_NONE), 0);
  const Words values = Random(16);
  for (Isa isa : SupportedIsas()) {
    for (uint32_t n = 0; n <= 16; ++n) {
      // The n elements end where memory ends.
      auto* edge = reinterpret_cast<uint32_t*>(pages + page) - n;
      std::memcpy(edge, values.data(), n * sizeof(uint32_t));
      const Words count(16, n);
      Words got(16, 7);
      FindVectorOp(isa, "load_n")->run(edge, count.data(), nullptr, got.data(), 16);
      for (uint32_t i = 0; i < 16; ++i) ASSERT_EQ(got[i], i < n ? values[i] : 0u) << Name(isa) << " " << n;
      std::memset(edge, 0, n * sizeof(uint32_t));
      FindVectorOp(isa, "store_n")->run(values.data(), count.data(), nullptr, edge, 16);
      ASSERT_EQ(std::memcmp(edge, values.data(), n * sizeof(uint32_t)), 0);
      Words kept(16, 7);
      FindVectorOp(isa, "store_n")->run(values.data(), count.data(), nullptr, kept.data(), 16);
      for (uint32_t i = 0; i < 16; ++i) ASSERT_EQ(kept[i], i < n ? values[i] : 7u) << Name(isa) << " " << n;
    }
  }
  munmap(pages, static_cast<size_t>(2 * page));
}

TEST_F(Vec16Test, WidenEveryByteAndHalf) {
  for (Isa isa : SupportedIsas()) {
    const ScopedFloatEnv env;
    for (uint32_t base = 0; base < 0x10000; base += 16) {
      std::array<uint16_t, 32> halves{};
      std::array<uint8_t, 64> bytes{};
      for (uint32_t i = 0; i < 16; ++i) halves[i] = static_cast<uint16_t>(base + i);
      for (uint32_t i = 0; i < 16; ++i) bytes[i] = static_cast<uint8_t>(base + i);
      const auto run = [&](const char* name, const void* input) {
        std::array<uint32_t, 16> words, out;
        std::memcpy(words.data(), input, sizeof(words));
        FindVectorOp(isa, name)->run(words.data(), nullptr, nullptr, out.data(), 16);
        return out;
      };
      const auto u8 = run("widen_u8", bytes.data());
      const auto i8 = run("widen_i8", bytes.data());
      const auto u16 = run("widen_u16", halves.data());
      const auto f16 = run("widen_f16", halves.data());
      for (uint32_t i = 0; i < 16; ++i) {
        ASSERT_EQ(u8[i], bytes[i]);
        ASSERT_EQ(static_cast<int32_t>(i8[i]), static_cast<int8_t>(bytes[i]));
        ASSERT_EQ(u16[i], halves[i]);
        const float want = F16ToF32(halves[i]);
        ASSERT_TRUE(f16[i] == B(want) || (want != want && IsNanBits(f16[i]))) << halves[i];
      }
    }
  }
}

}  // namespace
}  // namespace plumbline

#include "plumbline/kernels/limits/limits.h"

#include <gtest/gtest.h>

#include <vector>

#include "plumbline/kernels/limits/isa_choice.h"
#include "plumbline/kernels/limits/limits_kernels_of.h"

namespace plumbline {
namespace {

// A loop that the compiler shortened, or that left bytes out, would measure something else.
TEST(Limits, LoopsDoTheWorkTheyAreCountedFor) {
  std::vector<uint32_t> words(1024);
  uint32_t sum = 0;
  for (size_t i = 0; i < words.size(); ++i) sum += words[i] = static_cast<uint32_t>(i * i * 2654435761u);
  for (Isa isa : SupportedIsas()) {
    SCOPED_TRACE(Name(isa));
    const LimitsKernels& kernels = LimitsKernelsOf(isa);
    EXPECT_EQ(kernels.read(reinterpret_cast<const char*>(words.data()), 4096), sum);
    // Every multiply-add adds a quarter to where the chains began.
    const float begin = 16 * 66;
    EXPECT_EQ(kernels.multiply_add(8), begin + 8 * 0.25f * kMultiplyAddOperations / 2);
    EXPECT_EQ(kernels.dot_bf16 != nullptr, isa == Isa::kAvx512Bf16);
    if (kernels.dot_bf16 != nullptr) {
      EXPECT_EQ(kernels.dot_bf16(8), begin + 8 * 0.25f * kDotBf16Operations / 2);
    }
  }
}

TEST(Limits, MeasuresEachThatTheInstructionSetHas) {
  for (Isa isa : SupportedIsas()) {
    ThreadPool pool(2);
    const Result<MachineLimits> limits = MeasureLimits({pool, isa}, 0.01);
    ASSERT_TRUE(limits.has_value());
    EXPECT_GT(limits->read_bytes, 0);
    EXPECT_GT(limits->multiply_add, 0);
    EXPECT_EQ(limits->dot_bf16 > 0, SupportedIsas().back() == Isa::kAvx512Bf16);
  }
}

TEST(FastestIsa, IsTheStrongestUnlessVdpbf16psIsSlow) {
  EXPECT_EQ(ChooseIsa(Isa::kAvx512Bf16, 400e9, 200e9), Isa::kAvx512Bf16);
  EXPECT_EQ(ChooseIsa(Isa::kAvx512Bf16, 200e9, 200e9), Isa::kAvx512Bf16);
  EXPECT_EQ(ChooseIsa(Isa::kAvx512Bf16, 90e9, 190e9), Isa::kAvx512);
  EXPECT_EQ(ChooseIsa(Isa::kAvx512, 0, 190e9), Isa::kAvx512);
  EXPECT_EQ(ChooseIsa(Isa::kAvx2, 0, 90e9), Isa::kAvx2);
  const Result<Isa> isa = FastestIsa();
  ASSERT_TRUE(isa.has_value());
  const Isa strongest = SupportedIsas().back();
  EXPECT_TRUE(*isa == strongest || (strongest == Isa::kAvx512Bf16 && *isa == Isa::kAvx512));
}

}  // namespace
}  // namespace plumbline

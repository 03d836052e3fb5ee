#include "plumbline/nn/leaf.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

TEST(LeafLength, IsTheLargestDivisorOfTheGranuleThatHoldsWholeBlocks) {
  EXPECT_EQ(LeafLength(0, DType::kBF16), 256);
  EXPECT_EQ(LeafLength(192, DType::kQ4_1), 192);  // SmolLM2's o_proj: 3 heads of 64 a KV group
  EXPECT_EQ(LeafLength(1024, DType::kBF16), 256);
  EXPECT_EQ(LeafLength(320, DType::kQ8_0), 160);
  EXPECT_EQ(LeafLength(36, DType::kF32), 36);
  EXPECT_EQ(LeafLength(192, DType::kQ4_K), 256);  // no divisor holds a block of 256
  EXPECT_EQ(LeafLength(48, DType::kQ8_0), 256);
}

}  // namespace
}  // namespace plumbline

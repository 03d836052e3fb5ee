#include "plumbline/kernels/dequant/dequant.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "plumbline/base/float_env.h"

namespace plumbline {
namespace {

struct Golden {
  std::vector<char> blocks;
  std::vector<float> values;
};

Golden ReadGolden(DType dtype) {
  const DTypeInfo& info = Info(dtype);
  const std::string path =
      std::string(PLUMBLINE_SOURCE_DIR "/tests/golden/gguf/dequant_") + std::string(info.name) + ".bin";
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const size_t count = bytes.size() / (info.block_bytes + 4 * info.block_elements);
  EXPECT_GT(count, 0u) << path;
  EXPECT_EQ(bytes.size(), count * (info.block_bytes + 4 * info.block_elements)) << path;
  Golden golden;
  golden.blocks.assign(bytes.begin(), bytes.begin() + static_cast<int64_t>(count * info.block_bytes));
  golden.values.resize(count * info.block_elements);
  std::memcpy(golden.values.data(), bytes.data() + golden.blocks.size(), 4 * golden.values.size());
  return golden;
}

void ExpectSameBits(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i])) {
      ASSERT_TRUE(std::isnan(got[i])) << i;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i])) << i;
    }
  }
}

class DequantTest : public testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(Types, DequantTest,
                         testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1,
                                         DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ4_K, DType::kQ5_K,
                                         DType::kQ6_K),
                         [](const auto& info) { return std::string(Info(info.param).name); });

TEST_P(DequantTest, MatchesTheReferenceBitForBit) {
  const Golden golden = ReadGolden(GetParam());
  std::vector<float> got(golden.values.size());
  DequantizeRow(GetParam(), golden.blocks.data(), static_cast<int64_t>(got.size()), got.data());
  ExpectSameBits(got, golden.values);
}

TEST_P(DequantTest, GivesTheSameBitsUnderFlushToZero) {
  const Golden golden = ReadGolden(GetParam());
  std::vector<float> got(golden.values.size());
  {
    const ScopedFloatEnv env;
    DequantizeRow(GetParam(), golden.blocks.data(), static_cast<int64_t>(got.size()), got.data());
  }
  ExpectSameBits(got, golden.values);
}

TEST_P(DequantTest, AcceptsAnyAlignmentAndWritesOnlyItsElements) {
  const Golden golden = ReadGolden(GetParam());
  const DTypeInfo& info = Info(GetParam());
  for (size_t shift = 1; shift < 4; ++shift) {
    std::vector<char> moved(golden.blocks.size() + shift);
    std::memcpy(moved.data() + shift, golden.blocks.data(), golden.blocks.size());
    std::vector<float> got(2 * info.block_elements, -1.0f);
    DequantizeRow(GetParam(), moved.data() + shift, info.block_elements, got.data());
    std::vector<float> want(golden.values.begin(), golden.values.begin() + info.block_elements);
    want.resize(got.size(), -1.0f);
    ExpectSameBits(got, want);
  }
  DequantizeRow(GetParam(), nullptr, 0, nullptr);
}

}  // namespace
}  // namespace plumbline

#include <gtest/gtest.h>

#include "plumbline/tensor/buffer.h"
#include "plumbline/tensor/matrix.h"

namespace plumbline {
namespace {

TEST(Buffer, IsZeroedAlignedAndMovable) {
  Buffer a = Buffer::Allocate(5 << 20).value();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 64, 0u);
  for (int32_t x : a.As<int32_t>()) ASSERT_EQ(x, 0);
  void* data = a.data();
  Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(a.bytes(), 0);
}

TEST(Buffer, RefusesWhatTheSystemCannotGive) {
  const Result<Buffer> buffer = Buffer::Allocate(int64_t{1} << 60);
  ASSERT_FALSE(buffer.has_value());
  EXPECT_NE(buffer.error().message.find("1152921504606846976"), std::string::npos);
}

TEST(MatrixView, RowsShareTheStride) {
  float data[12] = {};
  MatrixView<float> m(data, 3, 3, 4);
  EXPECT_EQ(m.Rows(1, 2).Row(1), data + 8);
}

}  // namespace
}  // namespace plumbline

#include <gtest/gtest.h>

#include "plumbline/tensor/buffer.h"
#include "plumbline/tensor/buffer_arena.h"
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

TEST(Buffer, LargeOnesBeginAtAHugePage) {
  for (const int64_t bytes : {int64_t{2} << 20, (int64_t{5} << 20) + 123}) {
    Buffer buffer = Buffer::Allocate(bytes).value();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % (2 << 20), 0u);
    static_cast<char*>(buffer.data())[0] = static_cast<char*>(buffer.data())[bytes - 1] = 1;
  }
}

TEST(BufferArena, SlicesAreApartZeroedAlignedAndOutliveIt) {
  std::vector<Buffer> slices;
  {
    BufferArena arena;
    for (int i = 0; i < 200; ++i) slices.push_back(arena.Allocate(300001 + i).value());
  }
  for (size_t i = 0; i < slices.size(); i += 2) slices[i] = Buffer();
  for (size_t i = 1; i < slices.size(); i += 2) {
    EXPECT_EQ(slices[i].bytes(), 300001 + static_cast<int64_t>(i));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(slices[i].data()) % kBufferAlignment, 0u);
    for (uint8_t& x : slices[i].As<uint8_t>()) {
      ASSERT_EQ(x, 0);
      x = static_cast<uint8_t>(i);
    }
  }
  for (size_t i = 1; i < slices.size(); i += 2) {
    for (const uint8_t x : slices[i].As<uint8_t>()) ASSERT_EQ(x, i);
  }
}

TEST(BufferArena, SmallerSlicesFillWhatLargerOnesLeft) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  BufferArena arena;
  std::vector<Buffer> slices;
  for (int i = 0; i < 11; ++i) slices.push_back(arena.Allocate(3 * kMiB).value());  // ten fit into a chunk
  const Buffer small = arena.Allocate(kMiB).value();
  EXPECT_EQ(small.data(), static_cast<char*>(slices[9].data()) + 3 * kMiB);
}

TEST(BufferArena, LargeOnesAreTheirOwn) {
  BufferArena arena;
  const Buffer large = arena.Allocate(int64_t{40} << 20).value();
  EXPECT_EQ(large.bytes(), int64_t{40} << 20);
  EXPECT_EQ(arena.Allocate(0).value().data(), nullptr);
  EXPECT_FALSE(arena.Allocate(int64_t{1} << 60).has_value());
}

TEST(MatrixView, RowsShareTheStride) {
  float data[12] = {};
  MatrixView<float> m(data, 3, 3, 4);
  EXPECT_EQ(m.Rows(1, 2).Row(1), data + 8);
}

}  // namespace
}  // namespace plumbline

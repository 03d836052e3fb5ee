#include "plumbline/pipelines/contract/declared_buffers.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

TEST(DeclaredBuffersTest, DeclaringAllocatesNothingAndTheFirstViewEverything) {
  DeclaredBuffers buffers;
  ASSERT_TRUE(buffers.Declare("tokens", DType::kI64, {100}, DeviceRef::Rank(0)).has_value());
  EXPECT_EQ(buffers.allocations(), 0);
  const InputTensor small = buffers.View("tokens", {3}).value();
  EXPECT_EQ(buffers.allocations(), 1);
  small.As<int64_t>()[2] = 7;
  const InputTensor whole = buffers.View("tokens", {10, 10}).value();
  EXPECT_EQ(buffers.allocations(), 1);
  EXPECT_EQ(whole.data, small.data);
  EXPECT_EQ(whole.As<int64_t>()[2], 7);
  EXPECT_EQ(whole.dtype, DType::kI64);
  EXPECT_EQ(whole.device, DeviceRef::Rank(0));
  EXPECT_EQ(buffers.View("tokens", {0}).value().shape, InputShape({0}));
}

TEST(DeclaredBuffersTest, EveryMisuseIsItsOwnError) {
  DeclaredBuffers buffers;
  ASSERT_TRUE(buffers.Declare("tokens", DType::kI64, {4}, DeviceRef::Rank(0)).has_value());
  EXPECT_TRUE(buffers.Declare("tokens", DType::kI64, {4}, DeviceRef::Rank(0)).has_value());
  EXPECT_EQ(buffers.Declare("tokens", DType::kI32, {4}, DeviceRef::Rank(0)).error().message,
            "tokens: got a second declaration as i32 [4] on rank 0, want i64 [4] on rank 0 as before "
            "(declared buffers)");
  EXPECT_FALSE(buffers.Declare("tokens", DType::kI64, {5}, DeviceRef::Rank(0)).has_value());
  EXPECT_FALSE(buffers.Declare("tokens", DType::kI64, {2, 2}, DeviceRef::Rank(0)).has_value());
  EXPECT_FALSE(buffers.Declare("tokens", DType::kI64, {4}, DeviceRef::Host()).has_value());
  const auto undeclared = buffers.View("token", {1});
  ASSERT_FALSE(undeclared.has_value());
  EXPECT_EQ(undeclared.error().code, ErrorCode::kInvalidInput);
  EXPECT_EQ(undeclared.error().message,
            "token: got a view of an undeclared buffer, want it declared (declared buffers)");
  const auto more = buffers.View("tokens", {5});
  ASSERT_FALSE(more.has_value());
  EXPECT_EQ(more.error().code, ErrorCode::kFailed);
  EXPECT_EQ(more.error().message, "tokens: got 5 elements, want at most the declared 4 (declared buffers)");
}

}  // namespace
}  // namespace plumbline

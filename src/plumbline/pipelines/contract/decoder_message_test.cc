#include "plumbline/pipelines/contract/decoder_message.h"

#include <gtest/gtest.h>

#include <cstring>

#include "plumbline/pipelines/contract/contract_test_util.h"

namespace plumbline {
namespace {

// A buffer that begins at a multiple of kMessageAlignment, whatever the allocator does.
struct Received {
  explicit Received(std::span<const std::byte> bytes) : memory(Buffer::Allocate(bytes.size() + 64).value()) {
    size = bytes.size();
    std::memcpy(memory.data(), bytes.data(), size);
  }
  std::span<std::byte> message() { return memory.As<std::byte>().first(size); }
  Buffer memory;
  size_t size = 0;
};

class DecoderMessageTest : public testing::Test {
 protected:
  const DecoderInputs<InputSpec>& declared() { return *deployment_.processor->declared(); }
  std::vector<std::byte> PackRandom(uint32_t seed) {
    std::mt19937 random(seed);
    inputs_ = deployment_.Prepare(deployment_.RandomBatches(random)).value();
    std::vector<std::byte> message(17, std::byte{0xff});
    EXPECT_TRUE(Pack(*inputs_, declared(), message).has_value());
    return message;
  }
  std::string UnpackFault(std::span<const std::byte> bytes) {
    Received received(bytes);
    auto record = Like<InputTensor>(declared());
    const Status status = Unpack(received.message(), declared(), record);
    return status.has_value() ? "" : status.error().message;
  }
  Deployment deployment_{{.every_field = true}};
  const DecoderInputs<InputTensor>* inputs_ = nullptr;
};

TEST_F(DecoderMessageTest, CarriedLeavesArriveAndRankLocalOnesStayBound) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Received received(PackRandom(seed));
    auto record = Like<InputTensor>(declared());
    Tensors tensors;
    record.signals->at(1) = tensors.Make(DType::kU8, {32}, DeviceRef::Rank(1));
    const InputTensor bound = record.signals->at(1);
    const Status status = Unpack(received.message(), declared(), record);
    ASSERT_TRUE(status.has_value()) << status.error().message;
    EXPECT_EQ(record.signals->at(1), bound);
    EXPECT_EQ(record.kv.Find("replica0/kv_blocks/0")->data, nullptr);
    const std::byte* begin = received.message().data();
    ForEachLeafPair(
        record, *inputs_, [&](const LeafName& name, const InputTensor& got, const InputTensor& sent) {
          const bool local =
              name.field == DecoderField::kSignals || name.path.find("kv_blocks") != name.path.npos ||
              name.field == DecoderField::kEp || name.field == DecoderField::kConstants ||
              name.field == DecoderField::kScratch || name.field == DecoderField::kStageBoundary ||
              (name.field == DecoderField::kLora && name.index == 3);
          if (local) return;
          const auto* data = static_cast<const std::byte*>(got.data);
          EXPECT_TRUE(data >= begin && data + got.Bytes() <= begin + received.size) << ToString(name);
          EXPECT_EQ((data - begin) % 16, 0);
          EXPECT_EQ(got.shape, sent.shape);
          EXPECT_EQ(got.dtype, sent.dtype);
          EXPECT_EQ(got.device, sent.device);
          EXPECT_EQ(std::memcmp(data, sent.data, sent.Bytes()), 0) << ToString(name);
        });
  }
}

TEST_F(DecoderMessageTest, TheSameStepIsTheSameBytes) { EXPECT_EQ(PackRandom(3), PackRandom(3)); }

TEST_F(DecoderMessageTest, EveryPrefixIsRefused) {
  const std::vector<std::byte> message = PackRandom(1);
  EXPECT_EQ(UnpackFault(message), "");
  for (size_t size = 0; size < message.size(); ++size) {
    ASSERT_NE(UnpackFault(std::span(message).first(size)), "") << size;
  }
  std::vector<std::byte> longer = message;
  longer.push_back({});
  EXPECT_EQ(UnpackFault(longer), fmt::format("message: got {} bytes, want {} (decoder message)",
                                             message.size() + 1, message.size()));
}

TEST_F(DecoderMessageTest, CorruptBytesNeverPointOutside) {
  const std::vector<std::byte> message = PackRandom(2);
  std::mt19937 random(6);
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::vector<std::byte> corrupt = message;
    const size_t bytes = 1 + random() % 4;
    for (size_t i = 0; i < bytes; ++i) {
      corrupt[random() % std::min<size_t>(corrupt.size(), 2600)] = static_cast<std::byte>(random() % 256);
    }
    Received received(corrupt);
    auto record = Like<InputTensor>(declared());
    if (!Unpack(received.message(), declared(), record).has_value()) {
      ++refused;
      continue;
    }
    const std::byte* begin = received.message().data();
    ForEachLeaf(record, [&](const LeafName& name, const InputTensor& leaf) {
      if (leaf.data == nullptr) return;
      const auto* data = static_cast<const std::byte*>(leaf.data);
      ASSERT_TRUE(data >= begin && data <= begin + received.size) << ToString(name);
      const int64_t bytes = leaf.shape.Elements() == 0 ? 0 : leaf.Bytes();
      ASSERT_LE(data + bytes, begin + received.size) << ToString(name);
    });
  }
  EXPECT_GT(refused, 1000);
}

TEST_F(DecoderMessageTest, EachFaultNamesTheLeaf) {
  const std::vector<std::byte> message = PackRandom(4);
  const auto with = [&](size_t at, auto value) {
    std::vector<std::byte> changed = message;
    std::memcpy(&changed[at], &value, sizeof(value));
    return UnpackFault(changed);
  };
  // The first leaf is tokens: dtype, device, rank and sizes follow the header of 32 bytes.
  EXPECT_EQ(with(0, uint32_t{7}),
            "message: got magic 0x7 version 1, want 0x49444c50 version 1 (decoder message)");
  EXPECT_EQ(with(8, uint64_t{3}).substr(0, 32), "message: got 3 leaves, want the ");
  EXPECT_EQ(with(32, uint32_t{200}), "tokens: got dtype number 200, want 4 (decoder message)");
  EXPECT_EQ(with(36, int32_t{3}), "tokens: got device 3, want 0 (decoder message)");
  EXPECT_EQ(with(40, uint32_t{9}), "tokens: got dimensions 9, want 1 (decoder message)");
  for (int64_t size : {int64_t{-1}, int64_t{1} << 61, int64_t{1} << 20}) {
    EXPECT_EQ(with(48, size).substr(0, 20), "tokens: got data at ") << size;
  }
  for (uint64_t offset : {uint64_t{0}, uint64_t{message.size() + 16}, ~uint64_t{15}, uint64_t{9}}) {
    EXPECT_EQ(with(48 + 64, offset).substr(0, 20), "tokens: got data at ") << offset;
  }
  Received received(message);
  auto record = Like<InputTensor>(declared());
  std::memmove(received.message().data() + 8, message.data(), message.size());
  EXPECT_EQ(
      Unpack(std::span(received.message().data() + 8, message.size()), declared(), record).error().message,
      "message: got an address that is no multiple of 16, want one (decoder message)");
}

TEST_F(DecoderMessageTest, WhatIsNotAsDeclaredIsNotPacked) {
  PackRandom(5);
  std::vector<std::byte> message;
  DecoderInputs<InputTensor> inputs = *inputs_;
  inputs.token_positions.reset();
  EXPECT_EQ(Pack(inputs, declared(), message).error().message,
            "token_positions: got none, want the declared input (decoder inputs)");
  inputs = *inputs_;
  inputs.tokens.data = nullptr;
  EXPECT_EQ(Pack(inputs, declared(), message).error().message,
            "tokens: got no data, want i64 [total_seq_len] on rank 0 (decoder message)");
}

}  // namespace
}  // namespace plumbline

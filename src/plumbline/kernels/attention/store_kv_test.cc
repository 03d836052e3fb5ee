#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

#include "plumbline/kernels/attention/attention_test_util.h"

namespace plumbline {
namespace {

constexpr int64_t kLayer = 1;  // the one AttentionWorld stores into

uint32_t Word(const char* p) {
  uint32_t word;
  std::memcpy(&word, p, 4);
  return word;
}

// One half of a pair of bf16, the even one above.
float Half(uint32_t word, bool even) { return Bf16ToF32(static_cast<bf16_bits>(even ? word >> 16 : word)); }

struct Stored {
  float k;
  float v;
};

// kv_layout.h, literally.
Stored Read(const KvLayout& layout, const void* page, int64_t kv_head, int64_t position, int64_t d) {
  const char* block = static_cast<const char*>(page) + layout.BlockOffset(kLayer, kv_head, position);
  const char* v = block + layout.PartBytes();
  const int64_t key = position % 64;
  if (layout.compute == Compute::kF32) {
    return {std::bit_cast<float>(Word(block + (d * 64 + key) * 4)),
            std::bit_cast<float>(Word(v + (key * layout.head_dim + d) * 4))};
  }
  return {Half(Word(block + (d / 2 * 64 + key) * 4), d % 2 == 0),
          Half(Word(v + (key / 2 * layout.head_dim + d) * 4), key % 2 == 0)};
}

class StoreKvTest : public ::testing::TestWithParam<AttentionShape> {};

// Positions [begin, length) hold the sequence's values, and later ones of the last block zero.
void ExpectStored(AttentionWorld& world, int64_t sequence, int64_t length) {
  const AttentionShape& shape = world.shape();
  const TestSequence& want = world.sequences()[sequence];
  for (int64_t position = 0; position < (length + 63) / 64 * 64; ++position) {
    const void* page = world.Page(sequence, position / shape.page_size);
    for (int64_t g = 0; g < shape.kv_heads; ++g) {
      for (int64_t d = 0; d < shape.head_dim; ++d) {
        const int64_t at = (position * shape.kv_heads + g) * shape.head_dim + d;
        const Stored got = Read(world.layout(), page, g, position, d);
        const float k = position < length ? AttentionTwinRound(shape.compute, want.k[at]) : 0.0f;
        const float v = position < length ? AttentionTwinRound(shape.compute, want.v[at]) : 0.0f;
        ASSERT_EQ(std::bit_cast<uint32_t>(got.k), std::bit_cast<uint32_t>(k)) << position << ", " << d;
        ASSERT_EQ(std::bit_cast<uint32_t>(got.v), std::bit_cast<uint32_t>(v)) << position << ", " << d;
      }
    }
  }
}

TEST_P(StoreKvTest, LaysOutWhatTheHeaderSaysWhateverTheChunks) {
  for (Isa isa : SupportedIsas()) {
    for (int threads : {1, 2, 3, 5}) {
      ThreadPool pool(threads);
      for (int64_t chunk : {1, 3, 64, 65, 150}) {
        if (chunk < 64 && threads > 2) continue;  // a fork for every token, and nothing new
        AttentionWorld world(GetParam(), {MakeSequence(GetParam(), 150, 1), MakeSequence(GetParam(), 63, 2)});
        for (int64_t begin = 0; begin < 150; begin += chunk) {
          std::vector<StepPart> parts = {{0, begin, std::min<int64_t>(150, begin + chunk)}};
          if (begin < 63) parts.push_back({1, begin, std::min<int64_t>(63, begin + chunk)});
          world.Store({pool, isa}, parts);
        }
        ExpectStored(world, 0, 150);
        ExpectStored(world, 1, 63);
      }
    }
  }
}

TEST_P(StoreKvTest, TouchesNothingElse) {
  ThreadPool pool(2);
  for (Isa isa : SupportedIsas()) {
    AttentionWorld world(GetParam(), {MakeSequence(GetParam(), 200, 1)});
    world.Store({pool, isa}, {{0, 0, 30}});
    const KvLayout& layout = world.layout();
    const auto* page = static_cast<const unsigned char*>(world.Page(0, 0));
    int64_t touched = 0;
    for (int64_t i = 0; i < layout.PageBytes(); ++i) touched += page[i] != 0xff;
    EXPECT_LE(touched, layout.kv_heads * layout.BlockBytes());
    for (int64_t i = 0; i < layout.BlockOffset(kLayer, 0, 0); ++i) ASSERT_EQ(page[i], 0xff);  // layer 0
  }
}

TEST_P(StoreKvTest, KeepsTheOtherHalfOfAPair) {
  ThreadPool pool(2);
  for (Isa isa : SupportedIsas()) {
    AttentionWorld world(GetParam(), {MakeSequence(GetParam(), 64, 1)});
    world.Store({pool, isa}, {{0, 0, 64}});
    world.Store({pool, isa}, {{0, 7, 8}});
    world.Store({pool, isa}, {{0, 12, 13}});
    world.Store({pool, isa}, {{0, 21, 29}});
    ExpectStored(world, 0, 64);
  }
}

// Tokens in pages of other ranks, in whole or from the middle of a step.
TEST_P(StoreKvTest, SkipsPagesThatAreNotThere) {
  const AttentionShape& shape = GetParam();
  const int64_t length = 3 * shape.page_size, cols = shape.kv_heads * shape.head_dim;
  ThreadPool pool(2);
  for (Isa isa : SupportedIsas()) {
    AttentionWorld world(shape, {MakeSequence(shape, length, 1)});
    AttentionWorld whole(shape, world.sequences());
    whole.Store({pool, isa}, {{0, 0, length}});
    void* const own[] = {nullptr, world.Page(0, 1), nullptr};
    void* const* const tables[] = {own};
    const int32_t offsets[] = {0, static_cast<int32_t>(length)}, lengths[] = {0};
    StoreKv({pool, isa}, world.layout(), {offsets, lengths, tables}, kLayer,
            {world.sequences()[0].k.data(), length, cols}, {world.sequences()[0].v.data(), length, cols});
    EXPECT_EQ(std::memcmp(world.Page(0, 1), whole.Page(0, 1), world.layout().PageBytes()), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, StoreKvTest,
                         ::testing::Values(AttentionShape{.head_dim = 64},
                                           AttentionShape{.head_dim = 7, .kv_heads = 3, .page_size = 128},
                                           AttentionShape{.head_dim = 20, .compute = Compute::kF32},
                                           AttentionShape{.head_dim = 1, .compute = Compute::kF32},
                                           AttentionShape{.head_dim = 1}, AttentionShape{.head_dim = 80}));

TEST(StoreKv, RoundsHostileValuesAsTheTwin) {
  ThreadPool pool(1);
  for (Isa isa : SupportedIsas()) {
    AttentionWorld world({.head_dim = 16, .kv_heads = 1},
                         {MakeSequence({.head_dim = 16, .kv_heads = 1}, 64, 1)});
    const float hostile[] = {kAttentionTestNan, kAttentionTestInf, -kAttentionTestInf, -0.0f,       1e-40f,
                             -1e-40f,           3.4e38f,           1.00390625f,        1.01171875f, 1e-38f};
    for (size_t i = 0; i < world.sequences()[0].k.size(); ++i) {
      world.sequences()[0].k[i] = hostile[i % 10];
      world.sequences()[0].v[i] = hostile[i * 7 % 10];
    }
    world.Store({pool, isa}, {{0, 0, 64}});
    ExpectStored(world, 0, 64);
  }
}

}  // namespace
}  // namespace plumbline

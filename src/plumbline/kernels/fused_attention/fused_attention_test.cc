// The kernels of fused attention against the scalar definition, bit for bit: instruction sets, threads,
// types, layouts, masks, softmaxes, biases, windows, dropout, odd sizes.
#include "plumbline/kernels/fused_attention/fused_attention_grad_twin.h"
#include "plumbline/kernels/fused_attention/fused_attention_test_util.h"

namespace plumbline::fused_testing {
namespace {

Values Twin(World& world, bool max_logit = true, int64_t groups = 1) {
  const ScopedFloatEnv env;
  return world.RunWith([](auto&&... args) { FusedAttentionTwin(args...); },
                       [](auto&&... args) { FusedAttentionGradTwin(args...); }, max_logit, groups);
}

void ExpectTwin(Case c) {
  World world(std::move(c));
  const Values want = Twin(world);
  for (const Isa isa : SupportedIsas()) {
    for (const int threads : {1, 2, 3, 5}) {
      for (const FusedProducts products : {FusedProducts::kFloats, FusedProducts::kPairs}) {
        world.spec().options.products = products;
        ThreadPool pool(threads);
        ASSERT_TRUE(SameBits(world.Run({pool, isa}), want))
            << Name(isa) << ", " << threads << " threads, " << static_cast<int>(products);
      }
    }
  }
}

FusedTokens Packed(std::vector<int32_t> lengths, std::vector<int32_t> offsets, int64_t batch,
                   int64_t tokens) {
  return TokensFromOffsets(lengths, offsets, batch, std::ssize(lengths) / batch, tokens).value();
}

constexpr FusedMask kMasks[] = {
    FusedMask::kNone,          FusedMask::kPadding,           FusedMask::kCausal,
    FusedMask::kPaddingCausal, FusedMask::kCausalBottomRight, FusedMask::kPaddingCausalBottomRight};
constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

// One choice of everything else for each mask and type, varied with n.
TEST(FusedAttention, IsItsTwinForEveryMaskAndType) {
  int n = 0;
  for (const FusedMask mask : kMasks) {
    for (const DType dtype : kTypes) {
      Case c = {.shape = {dtype, 2, 70 + n, 131 - n, 4, n % 3 == 0 ? 4 : n % 3, 5 + 2 * n, 3 + 3 * n}};
      c.mask = mask;
      c.options.softmax = static_cast<FusedSoftmax>(n % 3);
      c.options.bias_type = static_cast<FusedBias>(n / 3 % 3);
      c.options.bias_batch = n % 2 == 0 ? 1 : 2;
      c.options.bias_heads = n / 2 % 2 == 0 ? 1 : 4;
      c.options.left = n % 4 == 1 ? 20 : -1;
      c.options.right = n % 5 == 2 ? 7 : -1;
      c.options.dropout.probability = n % 4 == 3 ? 0.2f : 0.0f;
      c.options.float32_results = n % 7 == 6;
      c.tokens = {TokensFromLengths(std::vector<int32_t>{66, 9}, c.shape.q_tokens).value(),
                  TokensFromLengths(std::vector<int32_t>{3, 101}, c.shape.kv_tokens).value()};
      c.seed = ++n;
      SCOPED_TRACE(n);
      ExpectTwin(c);
    }
  }
}

TEST(FusedAttention, IsItsTwinOverSeveralBlocks) {
  for (const DType dtype : kTypes) {
    Case c = {.shape = {dtype, 1, 200, 330, 2, 1, 32, 48}, .mask = FusedMask::kCausalBottomRight};
    ExpectTwin(c);
    c.options.left = 70;
    c.options.softmax = FusedSoftmax::kOffByOne;
    ExpectTwin(c);
  }
}

// More key blocks and more query blocks than one thread takes at a time on its way back.
TEST(FusedAttention, IsItsTwinOverManyBlocks) {
  Case c = {.shape = {DType::kF32, 1, 700, 1200, 4, 2, 6, 4}, .mask = FusedMask::kCausalBottomRight};
  ExpectTwin(c);
  c.mask = FusedMask::kPaddingCausal;
  c.tokens.q = Packed({30, 650}, {0, 40, 0}, 1, 700);
  c.tokens.kv = Packed({200, 990}, {0, 205, 0}, 1, 1200);
  ExpectTwin(c);
}

TEST(FusedAttention, IsItsTwinForPackedSegmentsInEveryLayout) {
  for (const Packing packing : {Packing::kSeparate, Packing::kKvPacked, Packing::kQkvPacked}) {
    Case c = {.shape = {DType::kBF16, 2, 150, 150, 2, 2, 24, 24}, .packing = packing};
    c.mask = FusedMask::kPaddingCausal;
    c.tokens.q = Packed({70, 33, 0, 7, 1, 140}, {0, 72, 55, 0, 0, 7, 9, 0}, 2, 150);
    c.tokens.kv = Packed({70, 33, 5, 0, 2, 140}, {0, 72, 110, 0, 0, 3, 9, 0}, 2, 150);
    c.options.dropout.probability = 0.5f;
    c.options.softmax = FusedSoftmax::kLearnable;
    ExpectTwin(c);
  }
}

TEST(FusedAttention, IsItsTwinForTokensInAnyOrder) {
  Case c = {.shape = {DType::kF32, 1, 90, 170, 2, 1, 16, 8}, .mask = FusedMask::kPaddingCausal};
  for (int t = 0; t < 170; ++t) {
    // A permutation; every seventh token is padding; positions in threes are equal.
    const int at = (t * 63 + 5) % 170;
    c.tokens.kv.segments.push_back(t % 7 == 0 ? 0 : at % 2 + 1);
    c.tokens.kv.positions.push_back(at / 3);
    if (t >= 90) continue;
    c.tokens.q.segments.push_back(t % 9 == 0 ? 0 : (t * 7) % 3);
    c.tokens.q.positions.push_back((t * 31) % 90 - 10);
  }
  c.options.bias_type = FusedBias::kPostScale;
  c.options.bias_heads = 2;
  c.options.left = 12;
  c.options.dropout.probability = 0.1f;
  ExpectTwin(c);
}

TEST(FusedAttention, IsItsTwinAtTheEdgesOfTheNumbers) {
  for (const DType dtype : kTypes) {
    for (const float spread : {1e-30f, 60.0f, 3e4f}) {
      Case c = {.shape = {dtype, 1, 40, 100, 2, 2, 19, 21}, .mask = FusedMask::kCausal, .spread = spread};
      World world(c);
      world.Set(1, 0, 20, 3, std::numeric_limits<float>::infinity());
      world.Set(2, 0, 30, 22, std::numeric_limits<float>::quiet_NaN());
      world.Set(0, 0, 35, 2, std::numeric_limits<float>::quiet_NaN());
      const Values want = Twin(world);
      for (const Isa isa : SupportedIsas()) {
        ThreadPool pool(2);
        for (const FusedProducts products : {FusedProducts::kFloats, FusedProducts::kPairs}) {
          world.spec().options.products = products;
          ASSERT_TRUE(SameBits(world.Run({pool, isa}), want)) << Name(isa) << " " << spread;
        }
      }
    }
  }
}

TEST(FusedAttention, NothingIsRefusedForBeingEmpty) {
  for (const auto& [batch, q, kv] : {std::tuple{0, 3, 3}, {2, 0, 3}, {2, 3, 0}, {0, 0, 0}}) {
    Case c = {.shape = {DType::kF32, batch, q, kv, 2, 1, 4, 4}};
    c.options.softmax = FusedSoftmax::kLearnable;
    ExpectTwin(c);
  }
}

TEST(FusedAttention, MaxLogitsByGroupOfBatchRows) {
  World world({.shape = {DType::kF32, 6, 70, 80, 3, 1, 8, 8}, .mask = FusedMask::kCausal});
  ThreadPool pool(2);
  const KernelContext context = {pool, SupportedIsas().back()};
  for (const int64_t groups : {1, 2, 3, 6}) {
    EXPECT_TRUE(SameBits(world.Run(context, true, groups), Twin(world, true, groups))) << groups;
  }
}

TEST(FusedAttention, RefusesWhatItCannotUse) {
  ThreadPool pool(1);
  const KernelContext context = {pool, SupportedIsas().back()};
  World world({.shape = {DType::kF32, 1, 3, 3, 2, 1, 4, 4}});
  const auto message = [&](auto&& change) {
    FusedAttentionShape shape = world.spec().shape;
    FusedAttentionOptions options = world.spec().options;
    FusedAttentionInputs inputs = world.Inputs();
    change(shape, options, inputs);
    const Status status = FusedAttention(context, shape, options, inputs, {});
    return status.has_value() ? std::string() : status.error().message;
  };
  EXPECT_EQ(message([](auto& s, auto&, auto&) { s.kv_heads = 3; }),
            "heads: got 2, want a multiple of the 3 KV heads (fused attention)");
  EXPECT_EQ(message([](auto& s, auto&, auto&) { s.dtype = DType::kI32; }),
            "dtype: got i32, want f32, bf16 or f16 (fused attention)");
  EXPECT_EQ(message([](auto&, auto& o, auto&) { o.dropout.probability = 1.0f; }),
            "dropout probability: got 1, want at least 0 and less than 1 (fused attention)");
  EXPECT_EQ(message([](auto&, auto& o, auto&) { o.left = -2; }),
            "window: got (-2, -1), want -1 or more (fused attention)");
  EXPECT_EQ(message([](auto&, auto& o, auto&) { o.bias_type = FusedBias::kPreScale; }),
            "bias: got none, want one (fused attention)");
  EXPECT_EQ(message([](auto&, auto& o, auto&) { o.softmax = FusedSoftmax::kLearnable; }),
            "sink: got none, want [2] for the learnable softmax (fused attention)");
  EXPECT_EQ(message([](auto&, auto& o, auto&) { o.bias_heads = 4; }),
            "bias shape: got [1, 4], want 1 or 1 and 1 or 2 (fused attention)");
  EXPECT_EQ(message([](auto&, auto&, auto& i) { i.k.data = nullptr; }),
            "k: got no data, want an array (fused attention)");
  EXPECT_EQ(message([](auto&, auto&, auto&) {}), "out: got no data, want an array (fused attention)");
}

}  // namespace
}  // namespace plumbline::fused_testing

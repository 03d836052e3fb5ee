// Fused attention against float64 over layouts, masks, softmaxes, biases, windows, dtypes and odd sizes.
#include "plumbline/kernels/fused_attention/fused_attention_oracle.h"

namespace plumbline::fused_testing {
namespace {

constexpr FusedMask kMasks[] = {
    FusedMask::kNone,          FusedMask::kPadding,           FusedMask::kCausal,
    FusedMask::kPaddingCausal, FusedMask::kCausalBottomRight, FusedMask::kPaddingCausalBottomRight};
constexpr FusedSoftmax kSoftmaxes[] = {FusedSoftmax::kVanilla, FusedSoftmax::kOffByOne,
                                       FusedSoftmax::kLearnable};
constexpr FusedBias kBiases[] = {FusedBias::kNone, FusedBias::kPreScale, FusedBias::kPostScale};

void Check(Case c) {
  static ThreadPool pool(2);
  World world(std::move(c));
  ExpectOracle(world.Run({pool, SupportedIsas().back()}), world);
}

FusedTokens Packed(std::vector<int32_t> lengths, std::vector<int32_t> offsets, int64_t batch,
                   int64_t tokens) {
  const auto slots = static_cast<int64_t>(lengths.size()) / batch;
  return TokensFromOffsets(lengths, offsets, batch, slots, tokens).value();
}

TEST(FusedAttentionOracle, EveryMaskSoftmaxAndBias) {
  int n = 0;
  for (const FusedMask mask : kMasks) {
    for (const FusedSoftmax softmax : kSoftmaxes) {
      for (const FusedBias bias : kBiases) {
        Case c = {.shape = {DType::kF32, 2, 37, 70, 4, 2, 12, 9}, .mask = mask};
        c.options.softmax = softmax;
        c.options.bias_type = bias;
        c.options.bias_batch = n % 2 == 0 ? 1 : 2;
        c.options.bias_heads = n / 2 % 2 == 0 ? 1 : 4;
        c.tokens = {TokensFromLengths(std::vector<int32_t>{30, 0}, 37).value(),
                    TokensFromLengths(std::vector<int32_t>{66, 51}, 70).value()};
        c.seed = ++n;
        SCOPED_TRACE(n);
        Check(c);
      }
    }
  }
}

TEST(FusedAttentionOracle, EveryTypeLayoutAndWindow) {
  int n = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const Packing packing : {Packing::kSeparate, Packing::kKvPacked, Packing::kQkvPacked}) {
      for (const auto& [left, right] : {std::pair{-1, -1}, {5, 0}, {0, 3}, {9, 2}, {-1, 4}}) {
        for (const FusedMask mask :
             {FusedMask::kPadding, FusedMask::kPaddingCausal, FusedMask::kPaddingCausalBottomRight}) {
          Case c = {.shape = {dtype, 2, 75, 75, 2, 2, 17, 17}, .packing = packing, .mask = mask};
          c.options.left = left;
          c.options.right = right;
          c.tokens.q = Packed({20, 33, 0, 7, 1, 60}, {0, 22, 55, 0, 1, 9, 12, 0}, 2, 75);
          c.tokens.kv = Packed({20, 33, 0, 7, 1, 60}, {0, 22, 55, 0, 1, 9, 12, 0}, 2, 75);
          c.seed = ++n;
          SCOPED_TRACE(n);
          Check(c);
        }
      }
    }
  }
}

TEST(FusedAttentionOracle, SegmentsThatDifferBetweenSidesAndRows) {
  for (const FusedMask mask :
       {FusedMask::kPadding, FusedMask::kPaddingCausal, FusedMask::kPaddingCausalBottomRight}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      Case c = {.shape = {dtype, 3, 90, 140, 4, 1, 20, 6}, .mask = mask};
      c.options.softmax = FusedSoftmax::kLearnable;
      // Slot 1 of row 0 is empty on the key side, slot 0 of row 1 on the query side; row 2 is all padding.
      c.tokens.q =
          Packed({20, 30, 25, -1, 70, 10, -1, -1, -1}, {0, 20, 51, 0, 0, 3, 75, 0, 0, 0, 0, 0}, 3, 90);
      c.tokens.kv =
          Packed({90, 0, 40, 60, 65, 2, 10, 20, 30}, {0, 95, 100, 0, 2, 65, 135, 0, 0, 30, 60, 0}, 3, 140);
      Check(c);
    }
  }
}

TEST(FusedAttentionOracle, OddSizesAndDropout) {
  int n = 0;
  for (const auto& [qk, v] : {std::pair{1, 1}, {3, 40}, {33, 16}, {64, 65}, {130, 2}}) {
    for (const auto& [sq, skv] : {std::pair{1, 1}, {1, 200}, {130, 3}, {65, 129}}) {
      Case c = {.shape = {n % 2 == 0 ? DType::kF32 : DType::kBF16, 1, sq, skv, 3, 3, qk, v}};
      c.mask = n % 3 == 0 ? FusedMask::kNone : FusedMask::kCausalBottomRight;
      c.options.dropout.probability = n % 2 == 1 ? 0.3f : 0.0f;
      c.options.dropout.seed[0] = 77;
      c.options.bias_type = n % 4 == 3 ? FusedBias::kPostScale : FusedBias::kNone;
      c.seed = ++n;
      SCOPED_TRACE(n);
      Check(c);
    }
  }
}

TEST(FusedAttentionOracle, GradientsArePartialDerivatives) {
  // The oracle's own gradients, against differences of its own output.
  Case c = {.shape = {DType::kF32, 1, 5, 7, 2, 1, 3, 2}, .mask = FusedMask::kCausalBottomRight};
  c.options.softmax = FusedSoftmax::kLearnable;
  c.options.dropout.probability = 0.25f;
  World world(c);
  const auto loss = [&] {
    const Oracle::Doubles values = Oracle(world).Run().values;
    double sum = 0;
    for (size_t n = 0; n < values.out.size(); ++n) {
      sum += values.out[n] * world.Get(3, 0, static_cast<int64_t>(n) / 4, static_cast<int64_t>(n) % 4);
    }
    return sum;
  };
  const Oracle::Doubles values = Oracle(world).Run().values;
  const std::vector<double>* grads[] = {&values.dq, &values.dk, &values.dv};
  const int64_t widths[] = {6, 3, 2};
  constexpr float kStep = 0x1p-9f;
  for (int64_t member = 0; member < 3; ++member) {
    for (size_t n = 0; n < grads[member]->size(); ++n) {
      const int64_t t = static_cast<int64_t>(n) / widths[member],
                    i = static_cast<int64_t>(n) % widths[member];
      const float x = world.Get(member, 0, t, i);
      world.Set(member, 0, t, i, x + kStep);
      const double above = loss(), dx = world.Get(member, 0, t, i);
      world.Set(member, 0, t, i, x - kStep);
      const double slope = (above - loss()) / (dx - world.Get(member, 0, t, i));
      world.Set(member, 0, t, i, x);
      EXPECT_NEAR((*grads[member])[n], slope, 1e-4) << member << " " << n;
    }
  }
  for (int64_t h = 0; h < 2; ++h) {
    const float x = world.sink()[h];
    world.sink()[h] = x + kStep;
    const double above = loss();
    world.sink()[h] = x - kStep;
    EXPECT_NEAR(values.d_sink[h], (above - loss()) / (2 * kStep), 1e-4);
    world.sink()[h] = x;
  }
}

}  // namespace
}  // namespace plumbline::fused_testing

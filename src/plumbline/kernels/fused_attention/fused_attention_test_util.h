// Calls of fused attention with random inputs in every layout, and what must come out.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "plumbline/base/float_env.h"
#include "plumbline/kernels/fused_attention/attention_tokens.h"
#include "plumbline/kernels/fused_attention/fused_attention.h"
#include "plumbline/kernels/fused_attention/fused_elements.h"

namespace plumbline::fused_testing {

enum class Packing { kSeparate, kKvPacked, kQkvPacked };

struct Case {
  FusedAttentionShape shape = {};
  FusedAttentionOptions options = {.scale = 0.0f};  // 0: 1 / sqrt(qk_dim)
  Packing packing = Packing::kSeparate;
  FusedMask mask = FusedMask::kNone;
  FusedTokenPair tokens = {};  // empty: all tokens
  bool poison = true;          // NaN in padding tokens
  float spread = 1.0f;         // of q
  uint32_t seed = 1;
};

struct Values {
  std::vector<float> out = {}, lse = {}, max_logit = {}, dq = {}, dk = {}, dv = {}, d_bias = {}, d_sink = {};

  std::vector<std::pair<std::string, std::vector<float>*>> All() {
    return {{"out", &out}, {"lse", &lse}, {"max_logit", &max_logit}, {"dq", &dq},
            {"dk", &dk},   {"dv", &dv},   {"d_bias", &d_bias},       {"d_sink", &d_sink}};
  }
};

// Elements of one dtype, [batch, tokens, members, heads, dim], as operands.
class Array {
 public:
  Array(DType dtype, int64_t batch, int64_t tokens, int64_t members, int64_t heads, int64_t dim)
      : dtype_(dtype), tokens_(tokens), members_(members), heads_(heads), dim_(dim) {
    bytes_.resize(batch * tokens * members * heads * dim * ByteSize(dtype, 1) + 2, 0x5a);
  }
  // Off any alignment but the element's.
  void* data() { return bytes_.data() + (dtype_ == DType::kF32 ? 0 : 2); }
  FusedOperand<void> Operand(int64_t member) {
    const int64_t size = ByteSize(dtype_, 1);
    return {static_cast<char*>(data()) + member * heads_ * dim_ * size, tokens_ * members_ * heads_ * dim_,
            members_ * heads_ * dim_, dim_};
  }
  FusedOperand<const void> ConstOperand(int64_t member) {
    const FusedOperand<void> operand = Operand(member);
    return {operand.data, operand.batch_stride, operand.token_stride, operand.head_stride};
  }
  void Set(int64_t b, int64_t t, int64_t member, int64_t i, float x) {
    StoreFusedElement(dtype_, data(), ((b * tokens_ + t) * members_ + member) * heads_ * dim_ + i, x);
  }
  float Get(int64_t b, int64_t t, int64_t member, int64_t i) {
    return LoadFusedElement(dtype_, data(), ((b * tokens_ + t) * members_ + member) * heads_ * dim_ + i);
  }
  // [batch, tokens, heads, dim] of one member.
  std::vector<float> Member(int64_t batch, int64_t member) {
    std::vector<float> values;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t t = 0; t < tokens_; ++t) {
        for (int64_t i = 0; i < heads_ * dim_; ++i) values.push_back(Get(b, t, member, i));
      }
    }
    return values;
  }

 private:
  DType dtype_;
  int64_t tokens_, members_, heads_, dim_;
  std::vector<char> bytes_;
};

class World {
 public:
  explicit World(Case c) : case_(std::move(c)), in_(MakeInputs(case_.shape.dtype)) {
    const FusedAttentionShape& s = case_.shape;
    if (case_.options.scale == 0.0f) {
      case_.options.scale = 1.0f / std::sqrt(static_cast<float>(s.qk_dim));
    }
    if (case_.tokens.q.segments.empty()) case_.tokens.q = AllTokens(s.batch, s.q_tokens);
    if (case_.tokens.kv.segments.empty()) case_.tokens.kv = AllTokens(s.batch, s.kv_tokens);
    ResolveMask(case_.mask, s.batch, s.q_tokens, s.kv_tokens, &case_.tokens);
    case_.options.causal = IsCausalMask(case_.mask);
    std::mt19937 random(case_.seed);
    for (int64_t b = 0; b < s.batch; ++b) {
      FillTokens(random, b, s.q_tokens, case_.tokens.q, {{0, case_.spread}, {3, 1.0f}});
      FillTokens(random, b, s.kv_tokens, case_.tokens.kv, {{1, 1.0f}, {2, 1.0f}});
    }
    std::normal_distribution<float> normal;
    if (case_.options.bias_type != FusedBias::kNone) {
      bias_ = Array(s.dtype, case_.options.bias_batch, s.q_tokens, case_.options.bias_heads, 1, s.kv_tokens);
      const int64_t count = case_.options.bias_batch * case_.options.bias_heads * s.q_tokens * s.kv_tokens;
      for (int64_t n = 0; n < count; ++n) StoreFusedElement(s.dtype, bias_.data(), n, normal(random));
    }
    for (int64_t h = 0; h < s.heads; ++h) sink_.push_back(normal(random));
  }

  const Case& spec() const { return case_; }
  Case& spec() { return case_; }
  std::vector<float>& sink() { return sink_; }

  // Elements [heads * dim] of token t: member 0 q, 1 k, 2 v, 3 the gradient of out.
  float Get(int64_t member, int64_t b, int64_t t, int64_t i) {
    return Of(in_, member).Get(b, t, Slot(member), i);
  }
  void Set(int64_t member, int64_t b, int64_t t, int64_t i, float x) {
    Of(in_, member).Set(b, t, Slot(member), i, x);
  }
  float Bias(int64_t n) { return LoadFusedElement(case_.shape.dtype, bias_.data(), n); }

  FusedAttentionInputs Inputs() {
    return {.q = Of(in_, 0).ConstOperand(Slot(0)),
            .k = Of(in_, 1).ConstOperand(Slot(1)),
            .v = Of(in_, 2).ConstOperand(Slot(2)),
            .q_ids = case_.tokens.q.Ids(),
            .kv_ids = case_.tokens.kv.Ids(),
            .bias = case_.options.bias_type != FusedBias::kNone ? bias_.data() : nullptr,
            .sink = case_.options.softmax == FusedSoftmax::kLearnable ? sink_.data() : nullptr};
  }

  // forward(shape, options, inputs, outputs) and backward(shape, options, inputs, saved, grads).
  template <typename Forward, typename Backward>
  Values RunWith(Forward&& forward, Backward&& backward, bool max_logit = true, int64_t groups = 1) {
    const FusedAttentionShape& s = case_.shape;
    const DType results = case_.options.float32_results ? DType::kF32 : s.dtype;
    Values values;
    Array out(results, s.batch, s.q_tokens, 1, s.heads, s.v_dim);
    values.lse.assign(s.batch * s.heads * s.q_tokens, 0.25f);
    if (max_logit) values.max_logit.assign(groups * s.heads, 0.25f);
    forward(s, case_.options, Inputs(),
            FusedAttentionOutputs{.out = out.Operand(0),
                                  .lse = values.lse.data(),
                                  .max_logit = max_logit ? values.max_logit.data() : nullptr,
                                  .max_logit_groups = groups});
    values.out = out.Member(s.batch, 0);
    Array saved_out(s.dtype, s.batch, s.q_tokens, 1, s.heads, s.v_dim);
    for (size_t n = 0; n < values.out.size(); ++n)
      StoreFusedElement(s.dtype, saved_out.data(), n, values.out[n]);
    const FusedAttentionSaved saved = {.out = saved_out.ConstOperand(0),
                                       .d_out = Of(in_, 3).ConstOperand(Slot(3)),
                                       .lse = values.lse.data()};
    Inputs4 grads = MakeInputs(results);
    std::vector<char> d_bias(bias_.Member(case_.options.bias_batch, 0).empty() ? 0 : BiasCount() * 4);
    const bool has_bias = case_.options.bias_type != FusedBias::kNone;
    const bool has_sink = case_.options.softmax == FusedSoftmax::kLearnable;
    if (has_sink) values.d_sink.assign(s.heads, 0.25f);
    backward(s, case_.options, Inputs(), saved,
             FusedAttentionGrads{.dq = Of(grads, 0).Operand(Slot(0)),
                                 .dk = Of(grads, 1).Operand(Slot(1)),
                                 .dv = Of(grads, 2).Operand(Slot(2)),
                                 .d_bias = has_bias ? d_bias.data() : nullptr,
                                 .d_sink = has_sink ? values.d_sink.data() : nullptr});
    values.dq = Of(grads, 0).Member(s.batch, Slot(0));
    values.dk = Of(grads, 1).Member(s.batch, Slot(1));
    values.dv = Of(grads, 2).Member(s.batch, Slot(2));
    for (int64_t n = 0; has_bias && n < BiasCount(); ++n) {
      values.d_bias.push_back(LoadFusedElement(results, d_bias.data(), n));
    }
    return values;
  }

  Values Run(const KernelContext& context, bool max_logit = true, int64_t groups = 1) {
    const auto ok = [](const Status& status) { EXPECT_TRUE(status.has_value()) << status.error().message; };
    return RunWith([&](auto&&... args) { ok(FusedAttention(context, args...)); },
                   [&](auto&&... args) { ok(FusedAttentionGrad(context, args...)); }, max_logit, groups);
  }

  int64_t BiasCount() const {
    return case_.options.bias_batch * case_.options.bias_heads * case_.shape.q_tokens * case_.shape.kv_tokens;
  }

 private:
  using Inputs4 = std::vector<Array>;

  Inputs4 MakeInputs(DType dtype) const {
    const FusedAttentionShape& s = case_.shape;
    Inputs4 arrays;
    if (case_.packing == Packing::kQkvPacked) {
      arrays.emplace_back(dtype, s.batch, s.q_tokens, 3, s.heads, s.qk_dim);
    } else {
      arrays.emplace_back(dtype, s.batch, s.q_tokens, 1, s.heads, s.qk_dim);
      const int64_t members = case_.packing == Packing::kKvPacked ? 2 : 1;
      arrays.emplace_back(dtype, s.batch, s.kv_tokens, members, s.kv_heads, s.qk_dim);
      if (members == 1) arrays.emplace_back(dtype, s.batch, s.kv_tokens, 1, s.kv_heads, s.v_dim);
    }
    arrays.emplace_back(dtype, s.batch, s.q_tokens, 1, s.heads, s.v_dim);
    return arrays;
  }
  Array& Of(Inputs4& arrays, int64_t member) const {
    if (member == 3) return arrays.back();
    if (case_.packing == Packing::kQkvPacked) return arrays[0];
    return arrays[case_.packing == Packing::kKvPacked ? std::min<int64_t>(member, 1) : member];
  }
  int64_t Slot(int64_t member) const {
    if (member == 3 || case_.packing == Packing::kSeparate) return 0;
    return case_.packing == Packing::kQkvPacked ? member : std::max<int64_t>(0, member - 1);
  }
  int64_t Width(int64_t member) const {
    const FusedAttentionShape& s = case_.shape;
    return (member == 0 || member == 3 ? s.heads : s.kv_heads) * (member < 2 ? s.qk_dim : s.v_dim);
  }

  void FillTokens(std::mt19937& random, int64_t b, int64_t count, const FusedTokens& tokens,
                  const std::vector<std::pair<int64_t, float>>& members) {
    std::normal_distribution<float> normal;
    for (int64_t t = 0; t < count; ++t) {
      const bool poisoned = case_.poison && tokens.segments[b * count + t] == 0;
      for (const auto& [member, spread] : members) {
        for (int64_t i = 0; i < Width(member); ++i) {
          const float x = spread * normal(random);
          Set(member, b, t, i, poisoned ? std::numeric_limits<float>::quiet_NaN() : x);
        }
      }
    }
  }

  Case case_;
  Inputs4 in_;
  Array bias_ = Array(DType::kF32, 0, 0, 0, 0, 0);
  std::vector<float> sink_;
};

// Equal bits; a NaN equals any NaN.
inline ::testing::AssertionResult SameBits(Values got, Values want) {
  auto all = got.All(), expected = want.All();
  for (size_t n = 0; n < all.size(); ++n) {
    const std::vector<float>&a = *all[n].second, &b = *expected[n].second;
    if (a.size() != b.size()) return ::testing::AssertionFailure() << all[n].first << " sizes differ";
    for (size_t i = 0; i < a.size(); ++i) {
      if (std::isnan(a[i]) && std::isnan(b[i])) continue;
      if (std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i])) continue;
      return ::testing::AssertionFailure()
             << all[n].first << "[" << i << "]: got " << a[i] << ", want " << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace plumbline::fused_testing

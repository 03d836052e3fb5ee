// What fused attention must give, in float64 and from the formulas of the specification alone: masks and
// segments pair by pair, no blocks, no ranks. Beside each number its size: the same sum over the magnitudes
// of its terms, which is what rounding errors are relative to.
#pragma once

#include <algorithm>
#include <vector>

#include "plumbline/kernels/fused_attention/fused_attention_test_util.h"
#include "plumbline/kernels/fused_attention/fused_dropout.h"

namespace plumbline::fused_testing {

class Oracle {
 public:
  explicit Oracle(World& world) : w_(world), s_(world.spec().shape), o_(world.spec().options) {
    members_.resize(4);
    for (int64_t member = 0; member < 4; ++member) {
      const int64_t tokens = member == 0 || member == 3 ? s_.q_tokens : s_.kv_tokens;
      const int64_t width = Heads(member) * Dim(member);
      for (int64_t n = 0; n < s_.batch * tokens * width; ++n) {
        members_[member].push_back(w_.Get(member, n / width / tokens, n / width % tokens, n % width));
      }
    }
  }

  struct Doubles {
    std::vector<double> out, lse, max_logit, dq, dk, dv, d_bias, d_sink;
  };
  struct Results {
    Doubles values;
    Doubles sizes;  // of all but lse and max_logit
  };

  Results Run() {
    Reset(&d_);
    Reset(&sizes_);
    for (int64_t b = 0; b < s_.batch; ++b) {
      for (int64_t h = 0; h < s_.heads; ++h) {
        for (int64_t i = 0; i < s_.q_tokens; ++i) Row(b, h, i);
      }
    }
    return {std::move(d_), std::move(sizes_)};
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  void Reset(Doubles* doubles) const {
    Doubles& d_ = *doubles;
    d_.out.assign(s_.batch * s_.q_tokens * s_.heads * s_.v_dim, 0.0);
    d_.lse.assign(s_.batch * s_.heads * s_.q_tokens, -kInfinity);
    d_.max_logit.assign(s_.heads, -kInfinity);
    d_.dq.assign(members_[0].size(), 0.0);
    d_.dk.assign(members_[1].size(), 0.0);
    d_.dv.assign(members_[2].size(), 0.0);
    if (o_.bias_type != FusedBias::kNone) d_.d_bias.assign(w_.BiasCount(), 0.0);
    if (o_.softmax == FusedSoftmax::kLearnable) d_.d_sink.assign(s_.heads, 0.0);
  }

  int64_t Heads(int64_t member) const { return member == 0 || member == 3 ? s_.heads : s_.kv_heads; }
  int64_t Dim(int64_t member) const { return member < 2 ? s_.qk_dim : s_.v_dim; }
  // The row of `values`, laid out as `member`, of token t and query head h.
  template <typename T>
  T* At(std::vector<T>& values, int64_t member, int64_t b, int64_t h, int64_t t) const {
    const bool kv = member == 1 || member == 2;
    const int64_t head = kv ? h / (s_.heads / s_.kv_heads) : h, tokens = kv ? s_.kv_tokens : s_.q_tokens;
    return values.data() + ((b * tokens + t) * Heads(member) + head) * Dim(member);
  }
  static double Dot(const double* a, const double* b, int64_t n) {
    double sum = 0;
    for (int64_t d = 0; d < n; ++d) sum += a[d] * b[d];
    return sum;
  }

  bool Allowed(int64_t b, int64_t i, int64_t j) const {
    const FusedTokenPair& t = w_.spec().tokens;
    const int64_t q = b * s_.q_tokens + i, k = b * s_.kv_tokens + j;
    if (t.q.segments[q] == 0 || t.q.segments[q] != t.kv.segments[k]) return false;
    const int64_t offset = static_cast<int64_t>(t.kv.positions[k]) - t.q.positions[q];
    if (o_.causal && offset > 0) return false;
    return !(o_.left >= 0 && offset < -o_.left) && !(o_.right >= 0 && offset > o_.right);
  }

  int64_t BiasAt(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const int64_t bb = o_.bias_batch > 1 ? b : 0, bh = o_.bias_heads > 1 ? h : 0;
    return ((bb * o_.bias_heads + bh) * s_.q_tokens + i) * s_.kv_tokens + j;
  }

  double Score(int64_t b, int64_t h, int64_t i, int64_t j) {
    const double raw = Dot(At(members_[0], 0, b, h, i), At(members_[1], 1, b, h, j), s_.qk_dim);
    const double scale = o_.scale;
    if (o_.bias_type == FusedBias::kNone) return raw * scale;
    const double bias = w_.Bias(BiasAt(b, h, i, j));
    return o_.bias_type == FusedBias::kPreScale ? (raw + bias) * scale : raw * scale + bias;
  }

  double Keep(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (o_.dropout.probability == 0.0f) return 1.0;
    return FusedDropoutKeeps(o_.dropout, b, h, i, j) ? 1.0 / (1.0 - o_.dropout.probability) : 0.0;
  }

  void Row(int64_t b, int64_t h, int64_t i) {
    if (w_.spec().tokens.q.segments[b * s_.q_tokens + i] == 0) return;
    std::vector<int64_t> keys;
    std::vector<double> x;
    double sink = -kInfinity;
    if (o_.softmax == FusedSoftmax::kOffByOne) sink = 0.0;
    if (o_.softmax == FusedSoftmax::kLearnable) sink = w_.sink()[h];
    double top = sink;
    for (int64_t j = 0; j < s_.kv_tokens; ++j) {
      if (!Allowed(b, i, j)) continue;
      keys.push_back(j);
      x.push_back(Score(b, h, i, j));
      d_.max_logit[h] = std::max(d_.max_logit[h], x.back());
      top = std::max(top, x.back());
    }
    double& lse = d_.lse[(b * s_.heads + h) * s_.q_tokens + i];
    if (top == -kInfinity) return;
    double sum = std::exp(sink - top);
    for (const double value : x) sum += std::exp(value - top);
    lse = top + std::log(sum);

    double *out = At(d_.out, 3, b, h, i), *size = At(sizes_.out, 3, b, h, i);
    for (size_t n = 0; n < keys.size(); ++n) {
      const double p = std::exp(x[n] - lse) * Keep(b, h, i, keys[n]);
      const double* v = At(members_[2], 2, b, h, keys[n]);
      for (int64_t d = 0; d < s_.v_dim; ++d) out[d] += p * v[d];
      for (int64_t d = 0; d < s_.v_dim; ++d) size[d] += std::fabs(p * v[d]);
    }
    RowGrad(b, h, i, keys, x, lse, sink);
  }

  void RowGrad(int64_t b, int64_t h, int64_t i, const std::vector<int64_t>& keys,
               const std::vector<double>& x, double lse, double sink) {
    const double* d_out = At(members_[3], 3, b, h, i);
    const double* out = At(d_.out, 3, b, h, i);
    const double delta = Dot(d_out, out, s_.v_dim);
    const double delta_size = SizeOfDot(d_out, At(sizes_.out, 3, b, h, i), s_.v_dim);
    if (o_.softmax == FusedSoftmax::kLearnable) {
      d_.d_sink[h] -= std::exp(sink - lse) * delta;
      sizes_.d_sink[h] += std::exp(sink - lse) * delta_size;
    }
    for (size_t n = 0; n < keys.size(); ++n) {
      const int64_t j = keys[n];
      const double p = std::exp(x[n] - lse), keep = Keep(b, h, i, j);
      const double* v = At(members_[2], 2, b, h, j);
      const double ds = p * (keep * Dot(d_out, v, s_.v_dim) - delta);
      const double ds_size = p * (keep * SizeOfDot(d_out, v, s_.v_dim) + delta_size);
      AddPair(&d_, b, h, i, j, keep * p, ds, [](double y) { return y; });
      AddPair(&sizes_, b, h, i, j, keep * p, ds_size, [](double y) { return std::fabs(y); });
    }
  }

  template <typename Sign>
  void AddPair(Doubles* to, int64_t b, int64_t h, int64_t i, int64_t j, double pd, double ds, Sign&& sign) {
    double *dq = At(to->dq, 0, b, h, i), *dk = At(to->dk, 1, b, h, j), *dv = At(to->dv, 2, b, h, j);
    const double *q = At(members_[0], 0, b, h, i), *k = At(members_[1], 1, b, h, j);
    const double* d_out = At(members_[3], 3, b, h, i);
    for (int64_t d = 0; d < s_.v_dim; ++d) dv[d] += sign(pd * d_out[d]);
    for (int64_t d = 0; d < s_.qk_dim; ++d) dq[d] += sign(o_.scale * ds * k[d]);
    for (int64_t d = 0; d < s_.qk_dim; ++d) dk[d] += sign(o_.scale * ds * q[d]);
    if (o_.bias_type == FusedBias::kNone) return;
    to->d_bias[BiasAt(b, h, i, j)] += o_.bias_type == FusedBias::kPreScale ? o_.scale * ds : ds;
  }
  static double SizeOfDot(const double* a, const double* b, int64_t n) {
    double sum = 0;
    for (int64_t d = 0; d < n; ++d) sum += std::fabs(a[d] * b[d]);
    return sum;
  }

  World& w_;
  const FusedAttentionShape& s_;
  const FusedAttentionOptions& o_;
  std::vector<std::vector<double>> members_;
  Doubles d_, sizes_;
};

// |got - want| <= relative * size, and half the least float16 beyond that.
inline void ExpectClose(const std::string& name, const std::vector<float>& got,
                        const std::vector<double>& want, const std::vector<double>& sizes, double relative) {
  ASSERT_EQ(got.size(), want.size()) << name;
  double worst = 0;
  for (size_t n = 0; n < got.size(); ++n) {
    if (std::isinf(want[n]) || sizes[n] == 0.0) {
      ASSERT_EQ(got[n], static_cast<float>(want[n])) << name << "[" << n << "]";
      continue;
    }
    ASSERT_NEAR(got[n], want[n], relative * sizes[n] + 0x1p-25) << name << "[" << n << "]";
    worst = std::max(worst, std::fabs(got[n] - want[n]) / (relative * sizes[n]));
  }
  ::testing::Test::RecordProperty("worst_" + name, std::to_string(worst));
}

// Each of these is rounded to the dtype once at most on the way: P, dS, out (in delta) and the result. The
// rest is float32: chains, and exp of a difference that has the error of the score.
inline void ExpectOracle(Values got, World& world) {
  const DType dtype = world.spec().shape.dtype;
  const double half = dtype == DType::kBF16 ? 0x1p-8 : dtype == DType::kF16 ? 0x1p-11 : 0x1p-24;
  const double float32 = 48 * 0x1p-24;
  const auto [want, sizes] = Oracle(world).Run();
  const auto at_least_one = [](const std::vector<double>& values) {
    std::vector<double> sizes;
    for (const double x : values) sizes.push_back(std::max(1.0, std::fabs(x)));
    return sizes;
  };
  ExpectClose("lse", got.lse, want.lse, at_least_one(want.lse), float32);
  if (!got.max_logit.empty()) {
    ExpectClose("max_logit", got.max_logit, want.max_logit, at_least_one(want.max_logit), float32);
  }
  ExpectClose("out", got.out, want.out, sizes.out, 2 * half + float32);
  ExpectClose("dq", got.dq, want.dq, sizes.dq, 3 * half + float32);
  ExpectClose("dk", got.dk, want.dk, sizes.dk, 3 * half + float32);
  ExpectClose("dv", got.dv, want.dv, sizes.dv, 2 * half + float32);
  if (!want.d_bias.empty()) ExpectClose("d_bias", got.d_bias, want.d_bias, sizes.d_bias, 2 * half + float32);
  if (!want.d_sink.empty()) ExpectClose("d_sink", got.d_sink, want.d_sink, sizes.d_sink, 2 * half + float32);
}

}  // namespace plumbline::fused_testing

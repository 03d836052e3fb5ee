#include "plumbline/kernels/norm/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "plumbline/base/float_env.h"
#include "plumbline/kernels/guarded_matrix.h"
#include "plumbline/kernels/norm/norm_twin.h"

namespace plumbline {
namespace {

constexpr float kEps = 1e-5f;

// A few rows stay below the size at which threads are woken, 40 rows of the larger widths go above it.
constexpr int64_t kRows[] = {1, 3, 40};
constexpr int64_t kCols[] = {1, 2, 15, 16, 17, 31, 48, 96, 575, 576, 1000};

// Calls fn(context, rows, cols) for every instruction set, number of threads and shape.
template <typename Fn>
void ForEachCase(Fn fn) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    for (Isa isa : SupportedIsas()) {
      for (int64_t rows : kRows) {
        for (int64_t cols : kCols) {
          SCOPED_TRACE(::testing::Message()
                       << Name(isa) << ", " << threads << " threads, " << rows << " x " << cols);
          fn(KernelContext{pool, isa}, rows, cols);
        }
      }
    }
  }
}

void ExpectRow(const float* got, const std::vector<float>& want) {
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(FloatBits(got[i]), FloatBits(want[i])) << "element " << i << ": " << got[i] << " " << want[i];
  }
}

TEST(NormTest, RmsNormEqualsItsTwin) {
  ForEachCase([](const KernelContext& context, int64_t rows, int64_t cols) {
    GuardedMatrix x(rows, cols, 1, 3.0f), weight(1, cols, 2), y(rows, cols);
    RmsNorm(context, x.View(), weight.View().data, kEps, y.View());
    std::vector<float> want(static_cast<size_t>(cols));
    for (int64_t r = 0; r < rows; ++r) {
      const ScopedFloatEnv env;
      TwinRmsNorm(x.View().Row(r), weight.View().data, kEps, cols, want.data());
      ExpectRow(y.View().Row(r), want);
    }
    EXPECT_TRUE(y.BorderIntact());
    // In place.
    RmsNorm(context, x.View(), weight.View().data, kEps, x.View());
    for (int64_t r = 0; r < rows; ++r) {
      ExpectRow(x.View().Row(r), std::vector<float>(y.View().Row(r), y.View().Row(r) + cols));
    }
    EXPECT_TRUE(x.BorderIntact());
  });
}

TEST(NormTest, RmsNormHeadsEqualsItsTwin) {
  ForEachCase([](const KernelContext& context, int64_t rows, int64_t head_dim) {
    constexpr int64_t kHeads = 3;
    GuardedMatrix x(rows, kHeads * head_dim, 3), before(rows, kHeads * head_dim, 3), weight(1, head_dim, 4);
    RmsNormHeads(context, x.View(), head_dim, weight.View().data, kEps);
    std::vector<float> want(static_cast<size_t>(head_dim));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t h = 0; h < kHeads; ++h) {
        const ScopedFloatEnv env;
        TwinRmsNorm(before.View().Row(r) + h * head_dim, weight.View().data, kEps, head_dim, want.data());
        ExpectRow(x.View().Row(r) + h * head_dim, want);
      }
    }
    EXPECT_TRUE(x.BorderIntact());
  });
}

TEST(NormTest, LayerNormEqualsItsTwin) {
  ForEachCase([](const KernelContext& context, int64_t rows, int64_t cols) {
    GuardedMatrix x(rows, cols, 5, 2.0f), weight(1, cols, 6), bias(1, cols, 7), y(rows, cols);
    for (const float* b : {static_cast<const float*>(bias.View().data), static_cast<const float*>(nullptr)}) {
      LayerNorm(context, x.View(), weight.View().data, b, kEps, y.View());
      std::vector<float> want(static_cast<size_t>(cols));
      for (int64_t r = 0; r < rows; ++r) {
        const ScopedFloatEnv env;
        TwinLayerNorm(x.View().Row(r), weight.View().data, b, kEps, cols, want.data());
        ExpectRow(y.View().Row(r), want);
      }
    }
    EXPECT_TRUE(y.BorderIntact());
    LayerNorm(context, x.View(), weight.View().data, nullptr, kEps, x.View());
    for (int64_t r = 0; r < rows; ++r) {
      ExpectRow(x.View().Row(r), std::vector<float>(y.View().Row(r), y.View().Row(r) + cols));
    }
  });
}

// Each element passes a handful of roundings after a sum whose error, over 16 lanes, grows with cols / 16.
TEST(NormTest, CloseToFloat64) {
  ThreadPool pool(1);
  const KernelContext context{pool, SupportedIsas().back()};
  for (int64_t cols : {48, 576, 4096}) {
    GuardedMatrix x(4, cols, 8, 5.0f), weight(1, cols, 9), bias(1, cols, 10), rms(4, cols), layer(4, cols);
    RmsNorm(context, x.View(), weight.View().data, kEps, rms.View());
    LayerNorm(context, x.View(), weight.View().data, bias.View().data, kEps, layer.View());
    const double tolerance = (6.0 + static_cast<double>(cols) / 32.0) * 0x1p-24;
    double worst = 0.0;
    for (int64_t r = 0; r < 4; ++r) {
      const float* row = x.View().Row(r);
      double sum = 0.0, square = 0.0, variance = 0.0;
      for (int64_t i = 0; i < cols; ++i) {
        sum += row[i];
        square += static_cast<double>(row[i]) * row[i];
      }
      const double n = static_cast<double>(cols);
      for (int64_t i = 0; i < cols; ++i) variance += (row[i] - sum / n) * (row[i] - sum / n);
      for (int64_t i = 0; i < cols; ++i) {
        const double w = weight.View().data[i], b = bias.View().data[i];
        const double want_rms = row[i] / std::sqrt(square / n + kEps) * w;
        const double want_layer = (row[i] - sum / n) / std::sqrt(variance / n + kEps) * w + b;
        worst = std::max(worst, std::fabs(rms.View().Row(r)[i] - want_rms) / std::fabs(want_rms) * 0x1p24);
        ASSERT_NEAR(rms.View().Row(r)[i], want_rms, tolerance * std::fabs(want_rms));
        // x - mean cancels: its error is relative to |x| and |mean|, about one standard deviation.
        ASSERT_NEAR(layer.View().Row(r)[i], want_layer,
                    tolerance * (std::fabs(want_layer) + std::fabs(b) + 2 * std::fabs(w)));
      }
    }
    std::printf("rms norm, %d columns: at most %.2f half-ulps\n", static_cast<int>(cols), worst);
  }
}

TEST(NormTest, NanStaysInItsRow) {
  ThreadPool pool(2);
  for (Isa isa : SupportedIsas()) {
    const KernelContext context{pool, isa};
    GuardedMatrix x(3, 40, 11), weight(1, 40, 12), y(3, 40);
    x.View().Row(1)[37] = std::numeric_limits<float>::quiet_NaN();
    RmsNorm(context, x.View(), weight.View().data, kEps, y.View());
    for (int64_t i = 0; i < 40; ++i) {
      EXPECT_FALSE(std::isnan(y.View().Row(0)[i]));
      EXPECT_TRUE(std::isnan(y.View().Row(1)[i]));
      EXPECT_FALSE(std::isnan(y.View().Row(2)[i]));
    }
  }
}

TEST(NormTest, NoRowsIsNoWork) {
  ThreadPool pool(2);
  float weight = 1.0f;
  RmsNorm({pool, SupportedIsas().back()}, {nullptr, 0, 1}, &weight, kEps, {nullptr, 0, 1});
}

}  // namespace
}  // namespace plumbline

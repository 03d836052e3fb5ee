#include "plumbline/kernels/rotary/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "plumbline/base/float_env.h"
#include "plumbline/kernels/guarded_matrix.h"
#include "plumbline/kernels/rotary/rotary_twin.h"

namespace plumbline {
namespace {

using Json = nlohmann::json;
using Type = RopeScaling::Type;

Json Golden() {
  std::ifstream file(PLUMBLINE_SOURCE_DIR "/tests/golden/rope/rope.json");
  return Json::parse(file);
}

RopeScaling ScalingOf(const Json& json) {
  RopeScaling scaling;
  const std::string type = json.at("rope_type");
  if (type == "linear") scaling.type = Type::kLinear;
  if (type == "llama3") scaling.type = Type::kLlama3;
  if (type == "yarn") scaling.type = Type::kYarn;
  scaling.factor = json.value("factor", 1.0);
  scaling.low_freq_factor = json.value("low_freq_factor", 1.0);
  scaling.high_freq_factor = json.value("high_freq_factor", 4.0);
  scaling.original_max_position = json.value("original_max_position_embeddings", 8192.0);
  scaling.beta_fast = json.value("beta_fast", 32.0);
  scaling.beta_slow = json.value("beta_slow", 1.0);
  scaling.attention_factor = json.value("attention_factor", 0.0);
  scaling.truncate = json.value("truncate", true);
  return scaling;
}

std::vector<float> Floats(const Json& bits) {
  std::vector<float> values;
  for (const Json& one : bits) values.push_back(std::bit_cast<float>(one.get<uint32_t>()));
  return values;
}

int64_t UlpDistance(float a, float b) {
  return std::abs(static_cast<int64_t>(FloatBits(a)) - static_cast<int64_t>(FloatBits(b)));
}

int64_t WorstUlp(const std::vector<float>& got, const std::vector<float>& want) {
  int64_t worst = 0;
  for (size_t i = 0; i < want.size(); ++i) worst = std::max(worst, UlpDistance(got[i], want[i]));
  return worst;
}

TEST(RotaryTest, FrequenciesAreTransformers) {
  const Json golden = Golden();
  ASSERT_GE(golden.at("cases").size(), 14u);
  for (const Json& one : golden.at("cases")) {
    const RopeFrequencies got =
        MakeRopeFrequencies(one.at("rotary_dim"), one.at("theta"), ScalingOf(one.at("scaling")));
    const std::vector<float> want = Floats(one.at("inv_freq"));
    ASSERT_EQ(got.inv_freq.size(), want.size());
    EXPECT_FLOAT_EQ(got.attention_factor, one.at("attention_factor").get<float>());
    EXPECT_LE(WorstUlp(got.inv_freq, want), 1) << one.at("scaling");
    if (one.contains("exact")) {
      EXPECT_LE(WorstUlp(got.inv_freq, Floats(one.at("exact"))), 4) << one.at("scaling");
    }
  }
}

TEST(RotaryTest, TablesAreTransformers) {
  const Json golden = Golden();
  const std::vector<int32_t> positions = golden.at("positions");
  const auto tokens = static_cast<int64_t>(positions.size());
  ThreadPool pool(1);
  int compared = 0;
  for (const Json& one : golden.at("cases")) {
    if (!one.contains("cos")) continue;
    RopeFrequencies frequencies;
    frequencies.inv_freq = Floats(one.at("inv_freq"));
    frequencies.attention_factor = one.at("attention_factor").get<float>();
    const auto half = static_cast<int64_t>(frequencies.inv_freq.size());
    GuardedMatrix cos(tokens, half), sin(tokens, half);
    RopeTables({pool, SupportedIsas().back()}, frequencies, positions, cos.View(), sin.View());
    const std::vector<float> want_cos = Floats(one.at("cos")), want_sin = Floats(one.at("sin"));
    const float tolerance = 1.5e-7f * frequencies.attention_factor;
    for (int64_t r = 0; r < tokens; ++r) {
      for (int64_t i = 0; i < half; ++i, ++compared) {
        const auto at = static_cast<size_t>(r * half + i);
        ASSERT_NEAR(cos.View().Row(r)[i], want_cos[at], tolerance) << positions[static_cast<size_t>(r)];
        ASSERT_NEAR(sin.View().Row(r)[i], want_sin[at], tolerance) << positions[static_cast<size_t>(r)];
      }
    }
    EXPECT_TRUE(cos.BorderIntact() && sin.BorderIntact());
  }
  EXPECT_GT(compared, 500);
}

// Within an ulp of the float64 sine and cosine of the same float32 angle, whatever the number of threads.
TEST(RotaryTest, TablesCloseToFloat64) {
  const RopeFrequencies frequencies = MakeRopeFrequencies(128, 500000.0, {});
  std::vector<int32_t> positions;
  for (int32_t p = 0; p < 3000; ++p) positions.push_back(p * 337);
  positions.push_back(std::numeric_limits<int32_t>::max());
  positions.push_back(-5);
  const auto tokens = static_cast<int64_t>(positions.size());
  GuardedMatrix first_cos(tokens, 64), first_sin(tokens, 64);
  int64_t inexact = 0;
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    GuardedMatrix cos(tokens, 64), sin(tokens, 64);
    RopeTables({pool, SupportedIsas().front()}, frequencies, positions, cos.View(), sin.View());
    if (threads == 1) first_cos = cos, first_sin = sin;
    for (int64_t r = 0; r < tokens; ++r) {
      for (int64_t i = 0; i < 64; ++i) {
        const float got_cos = cos.View().Row(r)[i], got_sin = sin.View().Row(r)[i];
        ASSERT_EQ(FloatBits(got_cos), FloatBits(first_cos.View().Row(r)[i]));
        ASSERT_EQ(FloatBits(got_sin), FloatBits(first_sin.View().Row(r)[i]));
        const float angle = static_cast<float>(positions[static_cast<size_t>(r)]) *
                            frequencies.inv_freq[static_cast<size_t>(i)];
        const auto want_cos = static_cast<float>(std::cos(static_cast<double>(angle)));
        const auto want_sin = static_cast<float>(std::sin(static_cast<double>(angle)));
        ASSERT_LE(UlpDistance(got_cos, want_cos), 1) << angle;
        ASSERT_LE(UlpDistance(got_sin, want_sin), 1) << angle;
        inexact += (got_cos != want_cos) + (got_sin != want_sin);
      }
    }
  }
  EXPECT_LE(inexact, 8);  // a float64 error of an ulp rarely decides a rounding
}

TEST(RotaryTest, ApplyEqualsItsTwin) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    for (Isa isa : SupportedIsas()) {
      for (int64_t half : {1, 3, 8, 16, 17, 32, 40}) {
        for (int64_t rest : {0, 5}) {
          for (int64_t rows : {1, 4, 60}) {
            constexpr int64_t kHeads = 5;
            const int64_t head_dim = 2 * half + rest;
            GuardedMatrix x(rows, kHeads * head_dim, 1), want(rows, kHeads * head_dim, 1);
            GuardedMatrix cos(rows, half, 2), sin(rows, half, 3);
            ApplyRope({pool, isa}, cos.View(), sin.View(), head_dim, x.View());
            for (int64_t r = 0; r < rows; ++r) {
              const ScopedFloatEnv env;
              float* row = want.View().Row(r);
              for (int64_t h = 0; h < kHeads; ++h) {
                TwinRotateHead(cos.View().Row(r), sin.View().Row(r), half, row + h * head_dim);
              }
              for (int64_t i = 0; i < kHeads * head_dim; ++i) {
                ASSERT_EQ(FloatBits(x.View().Row(r)[i]), FloatBits(row[i])) << Name(isa) << " half " << half;
              }
            }
            EXPECT_TRUE(x.BorderIntact());
          }
        }
      }
    }
  }
}

TEST(RotaryTest, RotationKeepsLengthAndMatchesFloat64) {
  ThreadPool pool(1);
  const KernelContext context{pool, SupportedIsas().back()};
  const RopeFrequencies frequencies = MakeRopeFrequencies(32, 10000.0, {});
  const std::vector<int32_t> positions = {0, 5, 1000};
  GuardedMatrix cos(3, 16), sin(3, 16), x(3, 32, 4), before(3, 32, 4);
  RopeTables(context, frequencies, positions, cos.View(), sin.View());
  ApplyRope(context, cos.View(), sin.View(), 32, x.View());
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t i = 0; i < 16; ++i) {
      const double c = cos.View().Row(r)[i], s = sin.View().Row(r)[i];
      const double a = before.View().Row(r)[i], b = before.View().Row(r)[i + 16];
      const double tolerance = 0x1p-23 * (std::fabs(a) + std::fabs(b));
      EXPECT_NEAR(x.View().Row(r)[i], a * c - b * s, tolerance);
      EXPECT_NEAR(x.View().Row(r)[i + 16], b * c + a * s, tolerance);
      if (r == 0) {
        EXPECT_EQ(x.View().Row(r)[i], before.View().Row(r)[i]);
      }
    }
  }
}

TEST(RotaryTest, DividesByFactors) {
  RopeFrequencies frequencies = MakeRopeFrequencies(6, 10000.0, {});
  const std::vector<float> before = frequencies.inv_freq;
  DivideFrequencies(frequencies, std::vector<float>{1.0f, 3.0f, 8.0f});
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(frequencies.inv_freq[i], before[i] / (i == 0 ? 1.0f : i == 1 ? 3.0f : 8.0f));
}

TEST(RotaryTest, RefusesWhatItCannotUse) {
  EXPECT_TRUE(ValidateRope(64, 10000.0, {}).has_value());
  const auto message = [](int64_t dim, double theta, RopeScaling scaling) {
    const Status status = ValidateRope(dim, theta, scaling);
    return status.has_value() ? std::string() : status.error().message;
  };
  EXPECT_EQ(message(63, 1e4, {}), "rope dimension: got 63, want a positive even number");
  EXPECT_EQ(message(64, 1.0, {}), "rope theta: got 1, want a number above 1");
  EXPECT_EQ(message(64, 1e4, {.type = Type::kLinear, .factor = 0.0}),
            "rope factor: got 0, want a positive number");
  EXPECT_EQ(message(64, 1e4, {.type = Type::kLlama3, .low_freq_factor = 4.0}),
            "rope low_freq_factor: got 4, want less than high_freq_factor 4");
  EXPECT_EQ(message(64, 1e4, {.type = Type::kYarn, .original_max_position = NAN}),
            "rope original_max_position_embeddings: got nan, want a positive number");
  EXPECT_EQ(message(64, 1e4, {.type = Type::kYarn, .beta_slow = 32.0}),
            "rope beta_slow: got 32, want less than beta_fast 32");
  EXPECT_EQ(message(64, 1e4, {.type = Type::kYarn, .attention_factor = -1.0}),
            "rope attention_factor: got -1, want a positive number");
}

}  // namespace
}  // namespace plumbline

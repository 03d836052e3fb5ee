// Rows of logits that are hard on sums, ties and special values. For tests.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace plumbline::logprobs_testing {

inline uint32_t BitsOf(float x) { return std::bit_cast<uint32_t>(x); }

enum class Kind { kNormal, kWide, kTies, kEqual, kMasked, kLowest, kNan, kInfinite, kDenormal };
inline constexpr Kind kKinds[] = {Kind::kNormal, Kind::kWide, Kind::kTies,     Kind::kEqual,   Kind::kMasked,
                                  Kind::kLowest, Kind::kNan,  Kind::kInfinite, Kind::kDenormal};

inline float Draw(Kind kind, std::mt19937& random) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float normal = std::normal_distribution<float>(0.0f, 3.0f)(random);
  const uint32_t die = random() % 64;
  switch (kind) {
    case Kind::kNormal:
      return normal;
    case Kind::kWide:
      return 30.0f * normal;
    case Kind::kTies:
      return std::round(normal * 0.5f);
    case Kind::kEqual:
      return 100.0f;
    case Kind::kMasked:
      return die < 60 ? -kInfinity : std::round(normal);
    case Kind::kLowest:
      return -kInfinity;
    case Kind::kNan:
      return die == 0 ? std::numeric_limits<float>::quiet_NaN() : die < 8 ? -kInfinity : normal;
    case Kind::kInfinite:
      return die == 0 ? kInfinity : die < 8 ? -kInfinity : normal;
    case Kind::kDenormal:
      return std::bit_cast<float>((die % 2) << 31 |
                                  (die < 32 ? static_cast<uint32_t>(random()) % 0x800000 : 0));
  }
  return 0.0f;
}

inline std::vector<float> Row(Kind kind, int64_t vocab, std::mt19937& random) {
  std::vector<float> row(static_cast<size_t>(vocab));
  for (float& x : row) x = Draw(kind, random);
  return row;
}

}  // namespace plumbline::logprobs_testing

#include "plumbline/kernels/sampling/sampling.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "plumbline/base/float_env.h"
#include "plumbline/base/philox.h"
#include "plumbline/kernels/math/scalar_math.h"

namespace plumbline {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A weight below exp(-17.5) < 2^-25 comes after a sum of at least 1 (the first weight) and leaves it as it
// is, and so does every later one. Such candidates change no sum and are never chosen, so they need not be
// sorted.
constexpr float kNegligible = 17.5f;

float Penalised(float x, float penalty) { return x > 0.0f ? x / penalty : x * penalty; }

// Adding zero makes one zero of both, and of denormals, so that the order of bits is the order of values.
Status PenalisedValues(std::span<const float> logits, std::span<const int32_t> history, float penalty,
                       std::vector<float>& values) {
  values.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) values[i] = logits[i] + 0.0f;
  if (penalty == 1.0f) return {};
  for (size_t i = 0; i < history.size(); ++i) {
    const int32_t id = history[i];
    if (id < 0 || static_cast<size_t>(id) >= logits.size()) {
      return InvalidInput("history[{}]: got token id {}, want 0 to {}", i, id, logits.size() - 1);
    }
    // From the logit, not from the value: a token seen twice is penalised once.
    values[static_cast<size_t>(id)] = Penalised(logits[static_cast<size_t>(id)], penalty) + 0.0f;
  }
  return {};
}

// The first candidate.
Result<int32_t> ArgMax(std::span<const float> values) {
  constexpr size_t kBlock = 64;
  float max = -kInfinity;
  size_t best = 0;
  for (size_t begin = 0; begin < values.size(); begin += kBlock) {
    const size_t end = std::min(begin + kBlock, values.size());
    // Most blocks hold neither a new maximum nor a NaN; this loop, unlike the next, runs in vectors.
    int unusual = 0;
    for (size_t i = begin; i < end; ++i) unusual += !(values[i] <= max);
    if (unusual == 0) continue;
    for (size_t i = begin; i < end; ++i) {
      if (std::isnan(values[i])) return InvalidInput("logits[{}]: got NaN, want a number", i);
      if (values[i] > max) {
        max = values[i];
        best = i;
      }
    }
  }
  if (max == kInfinity) return InvalidInput("logits[{}]: got inf, want a finite number or -inf", best);
  if (max == -kInfinity)
    return InvalidInput("logits: got -inf for all {} tokens, want one above", values.size());
  return static_cast<int32_t>(best);
}

// Ascending keys are descending values, and ascending ids where those are equal.
uint64_t KeyOf(float value, size_t id) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t descending = (bits >> 31) != 0 ? bits : ~bits & 0x7fffffffu;
  return uint64_t{descending} << 32 | id;
}
size_t IdOf(uint64_t key) { return key & 0xffffffffu; }
float ValueOf(uint64_t key) {
  const auto descending = static_cast<uint32_t>(key >> 32);
  return std::bit_cast<float>((descending >> 31) != 0 ? descending : ~descending & 0x7fffffffu);
}

// Puts the keys of values >= lowest first in keys, in ascending order of ids, and returns how many there are.
size_t CollectCandidates(std::span<const float> values, float lowest, std::vector<uint64_t>& keys) {
  constexpr size_t kBlock = 64;
  if (keys.size() < values.size()) keys.resize(values.size());
  size_t count = 0;
  for (size_t begin = 0; begin < values.size(); begin += kBlock) {
    const size_t end = std::min(begin + kBlock, values.size());
    int hits = 0;
    for (size_t i = begin; i < end; ++i) hits += values[i] >= lowest;
    if (hits == 0) continue;
    for (size_t i = begin; i < end; ++i) {
      if (values[i] >= lowest) keys[count++] = KeyOf(values[i], i);
    }
  }
  return count;
}

// The first `count` keys, which ascend in their ids: three stable passes over 11 bits each of the value part.
void RadixSort(size_t count, std::vector<uint64_t>& keys, std::vector<uint64_t>& spare) {
  constexpr int kBits = 11;
  constexpr uint64_t kMask = (1u << kBits) - 1;
  if (spare.size() < keys.size()) spare.resize(keys.size());
  std::array<std::array<uint32_t, kMask + 1>, 3> next{};
  for (size_t i = 0; i < count; ++i) {
    for (int pass = 0; pass < 3; ++pass) ++next[pass][(keys[i] >> (32 + pass * kBits)) & kMask];
  }
  for (int pass = 0; pass < 3; ++pass) {
    uint32_t total = 0;
    for (uint32_t& bucket : next[pass]) total += std::exchange(bucket, total);
    for (size_t i = 0; i < count; ++i)
      spare[next[pass][(keys[i] >> (32 + pass * kBits)) & kMask]++] = keys[i];
    keys.swap(spare);
  }
}

// Sorts the best `top_k` (0: all) of the first `count` keys and returns how many these are.
size_t SortCandidates(size_t count, int32_t top_k, std::vector<uint64_t>& keys,
                      std::vector<uint64_t>& spare) {
  const size_t kept = top_k == 0 ? count : std::min(count, static_cast<size_t>(top_k));
  const auto begin = keys.begin(), end = begin + static_cast<int64_t>(kept);
  if (kept < count) std::nth_element(begin, end, begin + static_cast<int64_t>(count));
  if (kept == count && count > 2048) {
    RadixSort(count, keys, spare);
  } else {
    std::sort(begin, end);
  }
  return kept;
}

// How many of the `count` sorted candidates top-p and min-p leave; fills the cumulative sums of their
// weights.
size_t KeepLikely(const SamplingOptions& options, size_t count, float max, SamplingScratch& scratch) {
  scratch.sums.resize(count);
  float* const sums = scratch.sums.data();
  size_t likely = count;
  float sum = 0.0f;
  for (size_t i = 0; i < count; ++i) {
    const float weight = ExpF(ValueOf(scratch.keys[i]) - max);
    if (weight < options.min_p) likely = std::min(likely, i);
    sum = sum + weight;
    sums[i] = sum;
  }
  if (options.top_p < 1.0f) {
    const auto reached = std::lower_bound(scratch.sums.begin(), scratch.sums.end(), options.top_p * sum);
    likely = std::min(likely, static_cast<size_t>(reached - scratch.sums.begin()) + 1);
  }
  return likely;
}

float UniformAt(uint64_t seed, int64_t position) {
  const auto counter = static_cast<uint64_t>(position);
  return UniformFloat(
      Philox4x32({static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
                 {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0})[0]);
}

}  // namespace

Status CheckSamplingOptions(const SamplingOptions& options) {
  if (!(options.temperature >= 0.0f && options.temperature < kInfinity)) {
    return InvalidInput("temperature: got {}, want a number of at least 0", options.temperature);
  }
  if (options.top_k < 0) return InvalidInput("top_k: got {}, want at least 0 (0: no limit)", options.top_k);
  if (!(options.top_p > 0.0f && options.top_p <= 1.0f)) {
    return InvalidInput("top_p: got {}, want above 0 and at most 1", options.top_p);
  }
  if (!(options.min_p >= 0.0f && options.min_p <= 1.0f)) {
    return InvalidInput("min_p: got {}, want 0 to 1", options.min_p);
  }
  if (!(options.repetition_penalty > 0.0f && std::isnormal(options.repetition_penalty))) {
    return InvalidInput("repetition_penalty: got {}, want a number above 0", options.repetition_penalty);
  }
  return {};
}

Result<int32_t> SampleToken(std::span<const float> logits, std::span<const int32_t> history, int64_t position,
                            const SamplingOptions& options, SamplingScratch& scratch) {
  RETURN_IF_ERROR(CheckSamplingOptions(options));
  if (logits.empty()) return InvalidInput("logits: got 0 values, want at least 1");
  const ScopedFloatEnv float_env;
  RETURN_IF_ERROR(PenalisedValues(logits, history, options.repetition_penalty, scratch.values));
  ASSIGN_OR_RETURN(const int32_t first, ArgMax(scratch.values));
  if (options.temperature == 0.0f) return first;
  const float max = scratch.values[static_cast<size_t>(first)] / options.temperature;
  if (!(std::abs(max) < kInfinity)) return first;

  // Temperature 1 divides nothing. Adding zero again: a quotient may have become -0.
  if (options.temperature != 1.0f) {
    for (float& value : scratch.values) value = value / options.temperature + 0.0f;
  }
  size_t count = CollectCandidates(scratch.values, max - kNegligible, scratch.keys);
  count = SortCandidates(count, options.top_k, scratch.keys, scratch.spare);
  const size_t likely = KeepLikely(options, count, max, scratch);
  const auto begin = scratch.sums.begin();
  const auto end = begin + static_cast<int64_t>(likely);
  const auto chosen = std::upper_bound(begin, end, UniformAt(options.seed, position) * *(end - 1));
  return static_cast<int32_t>(IdOf(scratch.keys[static_cast<size_t>(chosen - begin)]));
}

}  // namespace plumbline

// What the contract tests run on. For tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "plumbline/comm/communicator.h"

namespace plumbline {

using RankFunction = std::function<Status(Communicator&)>;

struct ContractBackend {
  std::string name;
  int ranks = 1;
  // Calls rank(communicator) for the ranks of this process in a group of its own; the first error that they
  // saw.
  std::function<Status(int ranks, const RankFunction& rank)> run;
};

inline void PrintTo(const ContractBackend& backend, std::ostream* out) { *out << backend.name; }

class ContractTest : public ::testing::TestWithParam<ContractBackend> {
 protected:
  int ranks() const { return GetParam().ranks; }
  Status Run(const RankFunction& rank) const { return GetParam().run(ranks(), rank); }
  void RunAll(const RankFunction& rank) const {
    const Status status = Run(rank);
    EXPECT_TRUE(status.has_value()) << status.error().message;
  }
};

namespace contract {

// From nothing to beyond what is staged.
inline const std::vector<int64_t> kSizes = {0, 1, 3, 1000, 4096, 4097, 16384, 70001, 5 << 20};

// Bytes that tell rank, place and `salt`.
inline std::vector<std::byte> Bytes(int rank, int64_t size, uint32_t salt = 0) {
  std::vector<std::byte> bytes(size);
  const uint32_t start = (rank + 1) * 2654435761u + salt * 40503u;
  for (int64_t i = 0; i < size; ++i) bytes[i] = std::byte((start + i * 2246822519u) >> 21);
  return bytes;
}

inline void Append(std::vector<std::byte>& all, const std::vector<std::byte>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// Floats of many magnitudes, so that the order of additions shows.
inline std::vector<float> Floats(uint32_t seed, int64_t n) {
  std::vector<float> values(n);
  uint32_t state = seed * 2654435761u + 12345u;
  for (float& x : values) {
    state = state * 1664525u + 1013904223u;
    x = std::ldexp(static_cast<float>(static_cast<int32_t>(state)) / 65536.0f,
                   static_cast<int>(state >> 11 & 15));
  }
  return values;
}

inline std::vector<int64_t> RandomOffsets(std::mt19937& random, int64_t leaves, int ranks) {
  std::vector<int64_t> offsets = {0, leaves};
  for (int i = 1; i < ranks; ++i) offsets.push_back(static_cast<int64_t>(random() % (leaves + 1)));
  std::sort(offsets.begin(), offsets.end());
  return offsets;
}

// The definition: the value at column c of node(level, index) over leaves [leaf][columns].
inline float NodeValue(const std::vector<std::vector<float>>& leaf, int64_t c, int level, int64_t index) {
  if (level == 0) return leaf[index][c];
  const float left = NodeValue(leaf, c, level - 1, 2 * index);
  if (((2 * index + 1) << (level - 1)) >= static_cast<int64_t>(leaf.size())) return left;
  return left + NodeValue(leaf, c, level - 1, 2 * index + 1);
}

struct Reduction {
  LeafSplit split;
  std::vector<float> my_nodes;  // of one rank
  std::vector<float> sum;
};

inline Reduction MakeReduction(const std::vector<int64_t>& offsets, int64_t columns, int rank,
                               uint32_t seed) {
  Reduction out{.split = LeafSplit(offsets), .my_nodes = {}, .sum = std::vector<float>(columns)};
  std::vector<std::vector<float>> leaf;
  for (int64_t i = 0; i < out.split.leaves(); ++i) {
    leaf.push_back(Floats(seed * 1000 + static_cast<uint32_t>(i), columns));
  }
  for (const DyadicNode& node : out.split.nodes(rank)) {
    for (int64_t c = 0; c < columns; ++c) {
      out.my_nodes.push_back(NodeValue(leaf, c, node.level, node.index));
    }
  }
  int top = 0;
  while ((int64_t{1} << top) < out.split.leaves()) ++top;
  for (int64_t c = 0; c < columns && !leaf.empty(); ++c) out.sum[c] = NodeValue(leaf, c, top, 0);
  return out;
}

inline bool SameBits(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(std::as_bytes(a), std::as_bytes(b));
}

}  // namespace contract
}  // namespace plumbline

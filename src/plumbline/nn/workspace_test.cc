#include "plumbline/nn/workspace.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace plumbline {
namespace {

// The bytes of one array.
struct Extent {
  const float* begin;
  const float* end;
};

Extent Of(const MatrixView<float>& m) { return {m.data, m.data + m.rows * m.stride}; }
Extent Of(std::span<const float> s) { return {s.data(), s.data() + s.size()}; }

void ExpectApart(std::vector<Extent> arrays, const char* what) {
  std::erase_if(arrays, [](const Extent& a) { return a.begin == a.end; });
  std::ranges::sort(arrays, {}, &Extent::begin);
  for (size_t i = 0; i + 1 < arrays.size(); ++i) EXPECT_LE(arrays[i].end, arrays[i + 1].begin) << what;
}

std::vector<Extent> Experts(const ExpertScratch& e) {
  return {Of(e.logits), Of(e.weights),  Of(e.in),       Of(e.gate),    Of(e.up),
          Of(e.nodes),  Of(e.out),      Of(e.send),     Of(e.raw),     Of(e.received),
          Of(e.give),   Of(e.returned), Of(e.combined), Of(e.gathered)};
}

std::vector<Extent> Join(std::vector<Extent> a, const std::vector<Extent>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(DecoderWorkspaceTest, WhatIsInUseTogetherLiesApart) {
  int checked = 0;
  for (const int64_t head_dim : {8, 48}) {  // queries narrower and wider than the hidden state
    for (const int64_t experts : {0, 4}) {
      for (const ParallelDegrees degrees :
           {ParallelDegrees{}, ParallelDegrees{.tp = 2}, ParallelDegrees{.tp = 2, .ep = 2}}) {
        DecoderConfig config{.hidden = 72,
                             .layers = 2,
                             .heads = 4,
                             .kv_heads = 2,
                             .head_dim = head_dim,
                             .intermediate = 200,
                             .vocab = 3000};
        if (experts > 0) {
          config.experts = {.count = experts, .per_token = 2, .intermediate = 56};
          config.sparse = {0, 1};
        } else if (degrees.ep > 1) {
          continue;
        }
        const Result<DecoderWorkspace> allocated = DecoderWorkspace::Allocate(
            config, ShardOf(config, degrees, 0),
            {.tokens = 5, .sum_nodes = degrees.tp > 1 ? 3 : 0, .exchanges = degrees.tp > 1});
        ASSERT_TRUE(allocated.has_value()) << allocated.error().message;
        const DecoderWorkspace& w = *allocated;
        const std::vector<Extent> always = {Of(w.hidden),
                                            Of(w.cos),
                                            Of(w.sin),
                                            Of(w.nodes),
                                            Of(w.sum),
                                            Of(w.exchange_send),
                                            Of(w.exchange_received),
                                            Of(w.exchanged)};
        ExpectApart(Join(always, {Of(w.embedded_send), Of(w.embedded)}), "embedding");
        ExpectApart(Join(always, {Of(w.normed), Of(w.q), Of(w.k), Of(w.v)}), "projections");
        ExpectApart(Join(always, {Of(w.context), Of(w.q), Of(w.k), Of(w.v)}), "attention");
        ExpectApart(Join(always, {Of(w.gate), Of(w.up)}), "feed-forward");
        ExpectApart(Join(always, Join({Of(w.normed)}, Experts(w.experts))), "experts");
        ++checked;
      }
    }
  }
  EXPECT_EQ(checked, 10);
}

TEST(DecoderWorkspaceTest, TakesTheWidestPartOfALayerOnce) {
  const DecoderConfig config{.hidden = 64,
                             .layers = 2,
                             .heads = 4,
                             .kv_heads = 2,
                             .head_dim = 16,
                             .intermediate = 512,
                             .vocab = 3000};
  // The hidden state, cos and sin (8 floats in 16 each), and of the rest gate and up.
  EXPECT_EQ(DecoderWorkspace::Bytes(config, ShardOf(config, {}, 0), {.tokens = 10}),
            (64 + 2 * 16 + 2 * 512) * 10 * 4);
}

}  // namespace
}  // namespace plumbline

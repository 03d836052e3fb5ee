// The function over ranks: 3 logits modes x 6 hidden-state modes x {1, 2, 4, 8} ranks, in both forms, against
// one row at a time on one rank.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "plumbline/kernels/math/scalar_math.h"
#include "plumbline/nn/distributed_logits_postprocess.h"
#include "plumbline/nn/rank_test_util.h"

namespace plumbline {
namespace {

constexpr int64_t kHidden = 32, kVocab = 2100, kLayers = 2;  // three tiles, the last one short
constexpr ReturnLogits kLogitsModes[] = {ReturnLogits::kLastToken, ReturnLogits::kVariable,
                                         ReturnLogits::kAll};
constexpr ReturnHiddenStates kHiddenModes[] = {
    ReturnHiddenStates::kNone,          ReturnHiddenStates::kLast, ReturnHiddenStates::kLastPerDevice,
    ReturnHiddenStates::kAllNormalized, ReturnHiddenStates::kAll,  ReturnHiddenStates::kSelectedLayers};
const DecoderConfig kConfig = {.hidden = kHidden,
                               .layers = 1,
                               .heads = 8,
                               .kv_heads = 8,
                               .head_dim = 4,
                               .intermediate = 256,
                               .vocab = kVocab};

std::vector<float> Normal(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// A batch, its replicas' shares of it, and what is made of it.
struct Batch {
  std::vector<int64_t> lengths;  // of the sequences
  std::vector<int64_t> splits;   // empty: the tensor-parallel form
  int64_t n = 1;
  bool norm = true;
  float scaling = 1.0f;
  std::optional<float> softcap = {};
  int64_t unpadded = 0;

  std::vector<uint32_t> Offsets() const {
    std::vector<uint32_t> offsets = {0};
    for (int64_t length : lengths) offsets.push_back(offsets.back() + static_cast<uint32_t>(length));
    return offsets;
  }
  int64_t rows() const { return Offsets().back(); }
};

class PostprocessRanksTest : public testing::Test {
 protected:
  PostprocessRanksTest() : head_(Normal(kVocab * kHidden, 1)), h_(Normal(64 * kHidden, 2)) {
    norm_.weight = Normal(kHidden, 3);
  }

  static constexpr int64_t kMaxRows = 64;
  RawTensor Head() const {
    return {.name = "head", .dtype = DType::kF32, .shape = {kVocab, kHidden}, .data = head_.data()};
  }
  MatrixView<const float> h(Range rows) const {
    return {h_.data() + rows.begin * kHidden, rows.size(), kHidden};
  }
  // What layer `layer` left on a device: every device has its own, so that their order shows.
  std::vector<float> Captured(int device, int64_t layer, int64_t rows) const {
    return Normal(rows * kHidden, static_cast<uint32_t>(100 + 10 * device + layer));
  }

  // Every row's logits by the definition, each row by itself on one rank.
  std::vector<float> Logits(const Batch& batch) const {
    ThreadPool pool(1);
    const KernelContext context{pool, SupportedIsas().back()};
    const PackedWeight weight = PackedWeight::Pack(context, Head(), Compute::kF32, 256).value();
    std::vector<float> all(batch.rows() * kVocab), row(kHidden);
    for (int64_t r = 0; r < batch.rows(); ++r) {
      const MatrixView<float> normed(row.data(), 1, kHidden);
      std::copy_n(h_.data() + r * kHidden, kHidden, row.data());
      if (batch.norm) norm_.Apply(context, normed, normed);
      PackedActivations packed;
      EXPECT_TRUE(packed.Pack(context, normed, Compute::kF32).has_value());
      float* logits = all.data() + r * kVocab;
      Gemm(context, packed, std::array{GemmJob{.weight = &weight, .y = {logits, 1, kVocab}}});
      for (int64_t v = 0; v < kVocab; ++v) {
        if (batch.scaling != 1.0f) logits[v] /= batch.scaling;
        if (batch.softcap) logits[v] = TanhF(logits[v] / *batch.softcap) * *batch.softcap;
        if (batch.unpadded > 0 && v >= batch.unpadded) logits[v] = -INFINITY;
      }
    }
    return all;
  }

  // Calls fn(rank, inputs) on every rank, with what that rank passes in the given modes.
  template <typename Fn>
  Status OnRanks(const ParallelDegrees& degrees, const Batch& batch, Fn&& fn) const {
    const std::vector<uint32_t> offsets = batch.Offsets();
    return RunOnRanks(kConfig, degrees, [&](const RankContext& rank) -> Status {
      const Range ids = rank.shard.vocab;
      LmHead head{.vocab = kVocab, .hidden = kHidden, .compute = Compute::kF32, .ids = ids};
      if (ids.size() > 0) {
        ASSIGN_OR_RETURN(PackedWeight weight, PackedWeight::Pack(rank.kernel, Head().Rows(ids.begin, ids.end),
                                                                 Compute::kF32, 256));
        head.weight = std::make_shared<PackedWeight>(std::move(weight));
      }
      Range own{0, batch.rows()};
      const bool data_parallel = !batch.splits.empty();
      const int replica = rank.data.rank();
      if (data_parallel) own = {offsets[batch.splits[replica]], offsets[batch.splits[replica + 1]]};
      Communicator& devices = data_parallel ? rank.data : rank.stage;
      std::vector<std::vector<float>> captured;
      std::vector<MatrixView<const float>> captures;
      for (int64_t layer = 0; layer < kLayers; ++layer) {
        captured.push_back(Captured(devices.rank(), layer, own.size()));
        captures.emplace_back(captured.back().data(), own.size(), kHidden);
      }
      return fn(rank, LogitsPostprocessInputs{.h = h(own),
                                              .input_row_offsets = offsets,
                                              .data_parallel_splits = batch.splits,
                                              .return_n_logits = batch.n,
                                              .lm_head = &head,
                                              .norm = batch.norm ? &norm_ : nullptr,
                                              .devices = &devices,
                                              .logits_scaling = batch.scaling,
                                              .logit_softcapping = batch.softcap,
                                              .unpadded_vocab = batch.unpadded,
                                              .capture_hidden_states = captures});
    });
  }

  // Rows of the batch that a logits mode selects.
  static std::vector<int64_t> Selected(const Batch& batch, ReturnLogits mode) {
    std::vector<int64_t> rows;
    int64_t end = 0;
    for (int64_t length : batch.lengths) {
      end += length;
      const int64_t count =
          mode == ReturnLogits::kLastToken ? 1 : (mode == ReturnLogits::kVariable ? batch.n : length);
      for (int64_t row = end - count; row < end; ++row) rows.push_back(row);
    }
    return rows;
  }

  static void ExpectElement(const LogitsPostprocessOutputs::Element& element, DType dtype,
                            std::vector<int64_t> shape, const void* want, const std::string& what) {
    EXPECT_EQ(element.dtype, dtype) << what;
    EXPECT_EQ(element.shape, shape) << what;
    int64_t elements = 1;
    for (int64_t size : shape) elements *= size;
    if (elements > 0) {
      EXPECT_EQ(std::memcmp(element.data, want, ByteSize(dtype, elements)), 0) << what;
    }
  }

  // Elements of the tuple that hidden states add, of `devices` devices.
  std::vector<std::vector<float>> HiddenStates(const Batch& batch, ReturnHiddenStates mode,
                                               int devices) const {
    const std::vector<uint32_t> offsets = batch.Offsets();
    std::vector<std::vector<float>> states;
    for (int device = 0; device < devices; ++device) {
      Range sequences{0, std::ssize(batch.lengths)};
      if (!batch.splits.empty()) sequences = {batch.splits[device], batch.splits[device + 1]};
      const Range rows{offsets[sequences.begin], offsets[sequences.end]};
      std::vector<float> all(h(rows).data, h(rows).data + rows.size() * kHidden);
      switch (mode) {
        case ReturnHiddenStates::kNone:
          break;
        case ReturnHiddenStates::kLast:
        case ReturnHiddenStates::kLastPerDevice: {
          if (mode == ReturnHiddenStates::kLast && device > 0) break;
          std::vector<float>& last = states.emplace_back();
          for (int64_t b = sequences.begin; b < sequences.end; ++b)
            last.insert(last.end(), h_.begin() + (offsets[b + 1] - 1) * kHidden,
                        h_.begin() + offsets[b + 1] * kHidden);
          break;
        }
        case ReturnHiddenStates::kAllNormalized: {
          ThreadPool pool(1);
          norm_.Apply({pool, SupportedIsas().front()}, h(rows), {all.data(), rows.size(), kHidden});
          states.push_back(all);
          break;
        }
        case ReturnHiddenStates::kAll:
          states.push_back(all);
          break;
        case ReturnHiddenStates::kSelectedLayers:
          for (int64_t layer = 0; layer < kLayers; ++layer)
            states.push_back(Captured(device, layer, rows.size()));
          break;
      }
    }
    return states;
  }

  // Every mode of both kinds: the tuple of section 2.3 on every rank.
  void ExpectContract(const ParallelDegrees& degrees, const Batch& batch) const {
    const std::vector<float> logits = Logits(batch);
    const int64_t sequences = std::ssize(batch.lengths);
    const std::vector<uint32_t> offsets = batch.Offsets();
    const auto gather = [&](const std::vector<int64_t>& rows) {
      std::vector<float> out;
      for (int64_t row : rows)
        out.insert(out.end(), logits.begin() + row * kVocab, logits.begin() + (row + 1) * kVocab);
      return out;
    };
    const Status status = OnRanks(degrees, batch, [&](const RankContext& rank, LogitsPostprocessInputs in) {
      LogitsWorkspace workspace;
      for (const ReturnLogits mode : kLogitsModes) {
        for (const ReturnHiddenStates hidden : kHiddenModes) {
          if (hidden == ReturnHiddenStates::kAllNormalized && !batch.norm) continue;
          in.return_logits = mode;
          in.return_hidden_states = hidden;
          const auto out = distributed_logits_postprocess(rank, in, workspace);
          if (!out) return Status(std::unexpected(out.error()));
          const std::string what =
              fmt::format("tp {} dp {}, logits mode {}, hidden states {}, rank {}", degrees.tp, degrees.dp,
                          static_cast<int>(mode), Name(hidden), rank.world.rank());
          const auto tuple = out->Tuple();
          const size_t prefix = mode == ReturnLogits::kLastToken ? 1 : 3;
          const auto states = HiddenStates(batch, hidden, in.devices->size());
          EXPECT_EQ(tuple.size(), prefix + states.size()) << what;
          if (tuple.size() != prefix + states.size()) return Status();
          ExpectElement(tuple[0], DType::kF32, {sequences, kVocab},
                        gather(Selected(batch, ReturnLogits::kLastToken)).data(), what);
          if (prefix == 3) {
            const std::vector<int64_t> rows = Selected(batch, mode);
            ExpectElement(tuple[1], DType::kF32, {std::ssize(rows), kVocab}, gather(rows).data(), what);
            std::vector<int64_t> steps;
            for (int64_t b = 0; b <= sequences; ++b) steps.push_back(b * batch.n);
            if (mode == ReturnLogits::kAll) {
              ExpectElement(tuple[2], DType::kU32, {sequences + 1}, offsets.data(), what);
            } else {
              ExpectElement(tuple[2], DType::kI64, {sequences + 1}, steps.data(), what);
            }
          }
          for (size_t i = 0; i < states.size(); ++i) {
            ExpectElement(tuple[prefix + i], DType::kF32, {std::ssize(states[i]) / kHidden, kHidden},
                          states[i].data(), what);
          }
        }
      }
      return Status();
    });
    ASSERT_TRUE(status.has_value()) << status.error().message;
  }

  const std::vector<float> head_, h_;
  FinalNorm norm_;
};

TEST_F(PostprocessRanksTest, TensorParallelFormGivesEveryModesTupleOnEveryRank) {
  const Batch batch{.lengths = {3, 2, 7, 2}, .n = 2};
  for (int ranks : {1, 2, 4, 8}) ExpectContract({.tp = ranks}, batch);
  Batch transformed = batch;
  transformed.scaling = 3.0f;
  transformed.softcap = 5.0f;
  transformed.unpadded = 2040;  // its tail begins in the last tile
  for (int ranks : {1, 2, 4, 8}) ExpectContract({.tp = ranks}, transformed);
  transformed.unpadded = 1000;  // whole tiles of it
  transformed.norm = false;
  transformed.n = 1;
  for (int ranks : {1, 4}) ExpectContract({.tp = ranks}, transformed);
}

TEST_F(PostprocessRanksTest, DataParallelFormGathersRowsInReplicaOrder) {
  const Batch one{.lengths = {3, 2, 7, 2}, .splits = {0, 4}, .n = 2};
  ExpectContract({}, one);
  Batch two = one;
  two.splits = {0, 3, 4};
  ExpectContract({.dp = 2}, two);
  ExpectContract({.tp = 2, .dp = 2}, two);
  two.norm = false;
  ExpectContract({.tp = 4, .dp = 2}, two);
  Batch empty = one;
  empty.splits = {0, 0, 2, 2, 4};
  empty.softcap = 10.0f;
  empty.unpadded = 2099;
  ExpectContract({.dp = 4}, empty);
  ExpectContract({.tp = 2, .dp = 4}, empty);
  Batch eight{.lengths = {1, 1, 5, 2, 9, 1, 1}, .splits = {0, 1, 1, 2, 3, 5, 6, 6, 7}, .n = 1};
  ExpectContract({.dp = 8}, eight);
}

TEST_F(PostprocessRanksTest, BatchesWithoutSequencesGiveTensorsWithoutRows) {
  ExpectContract({.tp = 4}, {.n = 3});
  ExpectContract({.dp = 4}, {.splits = {0, 0, 0, 0, 0}, .n = 3});
  ExpectContract({.tp = 2, .dp = 2}, {.splits = {0, 0, 0}});
}

TEST_F(PostprocessRanksTest, ModesAgreeWithOneAnother) {
  const Batch batch{.lengths = {4, 1, 6}, .splits = {0, 1, 3}};
  const std::vector<uint32_t> offsets = batch.Offsets();
  const Status status =
      OnRanks({.tp = 2, .dp = 2}, batch, [&](const RankContext& rank, LogitsPostprocessInputs in) {
        LogitsWorkspace last_workspace, variable_workspace, all_workspace;
        const auto last = distributed_logits_postprocess(rank, in, last_workspace);
        in.return_logits = ReturnLogits::kVariable;
        const auto variable = distributed_logits_postprocess(rank, in, variable_workspace);
        in.return_logits = ReturnLogits::kAll;
        const auto all = distributed_logits_postprocess(rank, in, all_workspace);
        const auto same = [](const float* a, const float* b, int64_t rows) {
          return std::memcmp(a, b, rows * kVocab * sizeof(float)) == 0;
        };
        EXPECT_TRUE(same(variable->logits->data, last->last_logits->data, 3));
        for (size_t b = 0; b < 3; ++b)
          EXPECT_TRUE(same(all->logits->Row(offsets[b + 1] - 1), all->last_logits->Row(b), 1)) << b;
        return Status();
      });
  ASSERT_TRUE(status.has_value()) << status.error().message;
}

TEST_F(PostprocessRanksTest, WhatEveryRankCanSeeIsRefusedOnEveryRank) {
  const Batch batch{.lengths = {4, 1, 6}, .splits = {0, 1, 3}};
  using In = LogitsPostprocessInputs;
  const std::vector<uint32_t> zero_length = {0, 4, 4, 11};
  const std::vector<int64_t> falling = {0, 4, 3}, three = {0, 1, 2, 3};
  const std::pair<std::string, std::function<void(In&)>> faults[] = {
      {"return_n_logits: got 2, want at most the 1 rows of sequence 1",
       [](In& in) { in.return_logits = ReturnLogits::kVariable, in.return_n_logits = 2; }},
      {"input_row_offsets: got 4 then 4, want at least one row (sequence 1)",
       [&](In& in) { in.input_row_offsets = zero_length; }},
      {"data_parallel_splits: got 0 to 3, want 0 to the 3 sequences of the batch, never falling",
       [&](In& in) { in.data_parallel_splits = falling; }},
      {"data_parallel_splits: got 4 elements, want 3, one more than replicas",
       [&](In& in) { in.data_parallel_splits = three; }},
      {"lm_head: got none, want one", [](In& in) { in.lm_head = nullptr; }},
  };
  for (const auto& [want, change] : faults) {
    std::atomic<int> refused = 0;
    const Status status = OnRanks({.tp = 2, .dp = 2}, batch, [&](const RankContext& rank, In in) {
      LogitsWorkspace workspace;
      change(in);
      const auto out = distributed_logits_postprocess(rank, in, workspace);
      EXPECT_FALSE(out.has_value());
      if (!out && out.error().message == want) ++refused;
      return Status();
    });
    EXPECT_TRUE(status.has_value());
    EXPECT_EQ(refused, 4) << want;
  }
}

TEST_F(PostprocessRanksTest, AFaultOfOneRankReachesTheOthers) {
  const Batch batch{.lengths = {4, 1, 6}};
  std::atomic<int> failed = 0;
  const Status status = OnRanks({.tp = 4}, batch, [&](const RankContext& rank, LogitsPostprocessInputs in) {
    LogitsWorkspace workspace;
    if (rank.world.rank() == 2) in.h.rows -= 1;
    const auto out = distributed_logits_postprocess(rank, in, workspace);
    if (out) return Status();
    ++failed;
    return Status(std::unexpected(out.error()));
  });
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().message, "rank 2: h: got 10 rows, want the 11 of input_row_offsets");
  EXPECT_EQ(failed, 4);
}

}  // namespace
}  // namespace plumbline

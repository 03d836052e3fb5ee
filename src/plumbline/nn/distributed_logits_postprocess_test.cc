#include "plumbline/nn/distributed_logits_postprocess.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "plumbline/comm/local/local_group.h"
#include "plumbline/kernels/logprobs/logprobs.h"
#include "plumbline/kernels/math/scalar_math.h"
#include "plumbline/nn/rank_groups.h"

namespace plumbline {
namespace {

constexpr int64_t kHidden = 48;
constexpr int64_t kVocab = 2100;  // three tiles, the last one short

// A ragged batch of three sequences over a random head and norm.
class LogitsPostprocessTest : public testing::Test {
 protected:
  LogitsPostprocessTest() {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    const auto fill = [&](std::vector<float>& values, int64_t size) {
      values.resize(size);
      for (float& value : values) value = normal(random);
    };
    fill(h_, kRows * kHidden);
    fill(head_weight_, kVocab * kHidden);
    fill(norm_.weight, kHidden);
    const RawTensor raw{
        .name = "head", .dtype = DType::kF32, .shape = {kVocab, kHidden}, .data = head_weight_.data()};
    head_ = {.vocab = kVocab, .hidden = kHidden, .compute = Compute::kF32, .ids = {0, kVocab}};
    head_.weight =
        std::make_shared<PackedWeight>(PackedWeight::Pack(context_, raw, Compute::kF32, 256).value());
  }

  Result<LogitsPostprocessOutputs> Run(const LogitsPostprocessInputs& in) {
    return distributed_logits_postprocess(groups_.Context(context_), in, workspace_);
  }

  LogitsPostprocessInputs Inputs() const {
    return {.h = MatrixView<const float>(h_.data(), kRows, kHidden),
            .input_row_offsets = offsets_,
            .lm_head = &head_,
            .norm = &norm_};
  }

  // Logits of one row by themselves: norm, head, scaling, cap, mask, each step spelled out.
  std::vector<float> RowLogits(int64_t row, const LogitsPostprocessInputs& in) {
    std::vector<float> normed(kHidden), logits(kVocab);
    MatrixView<float> view(normed.data(), 1, kHidden);
    if (in.norm != nullptr) {
      in.norm->Apply(context_, in.h.Rows(row, 1), view);
    } else {
      std::copy_n(in.h.Row(row), kHidden, normed.data());
    }
    PackedActivations packed;
    EXPECT_TRUE(packed.Pack(context_, view, Compute::kF32).has_value());
    Gemm(context_, packed,
         std::array{GemmJob{.weight = head_.weight.get(), .y = {logits.data(), 1, kVocab}}});
    for (int64_t v = 0; v < kVocab; ++v) {
      if (in.logits_scaling != 1.0f) logits[v] /= in.logits_scaling;
      if (in.logit_softcapping) logits[v] = TanhF(logits[v] / *in.logit_softcapping) * *in.logit_softcapping;
      if (in.unpadded_vocab > 0 && v >= in.unpadded_vocab) logits[v] = -INFINITY;
    }
    return logits;
  }

  void ExpectRows(MatrixView<const float> logits, const std::vector<int64_t>& rows,
                  const LogitsPostprocessInputs& in) {
    ASSERT_EQ(logits.rows, std::ssize(rows));
    ASSERT_EQ(logits.cols, kVocab);
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::vector<float> want = RowLogits(rows[i], in);
      ASSERT_EQ(std::memcmp(logits.Row(i), want.data(), kVocab * sizeof(float)), 0) << "row " << i;
    }
  }

  static constexpr int64_t kRows = 9;
  ThreadPool pool_{3};
  KernelContext context_{pool_, SupportedIsas().back()};
  std::vector<uint32_t> offsets_{0, 3, 4, 9};
  std::vector<float> h_, head_weight_;
  FinalNorm norm_;
  LmHead head_;
  std::vector<std::unique_ptr<Communicator>> world_ = MakeLocalGroup(1);
  RankGroups groups_ = RankGroups::Split(*world_[0], {}).value();
  LogitsWorkspace workspace_;
};

TEST_F(LogitsPostprocessTest, EveryLogitsModeGivesItsRowsAndOffsets) {
  LogitsPostprocessInputs in = Inputs();
  offsets_ = {0, 3, 5, 9};
  in.input_row_offsets = offsets_;
  {
    const auto out = Run(in).value();
    ExpectRows(*out.last_logits, {2, 4, 8}, in);
    EXPECT_EQ(out.Tuple().size(), 1u);
  }
  in.return_logits = ReturnLogits::kVariable;
  in.return_n_logits = 2;
  {
    const auto out = Run(in).value();
    ExpectRows(*out.last_logits, {2, 4, 8}, in);
    ExpectRows(*out.logits, {1, 2, 3, 4, 7, 8}, in);
    for (int64_t b = 0; b < 4; ++b) EXPECT_EQ((*out.variable_offsets)[b], 2 * b);
    const auto tuple = out.Tuple();
    ASSERT_EQ(tuple.size(), 3u);
    EXPECT_EQ(tuple[0].data, out.last_logits->data);
    EXPECT_EQ(tuple[1].data, out.logits->data);
    EXPECT_EQ(tuple[2].dtype, DType::kI64);
  }
  in.return_logits = ReturnLogits::kAll;
  {
    const auto out = Run(in).value();
    ExpectRows(*out.last_logits, {2, 4, 8}, in);
    ExpectRows(*out.logits, {0, 1, 2, 3, 4, 5, 6, 7, 8}, in);
    for (size_t b = 0; b < 4; ++b) EXPECT_EQ((*out.all_offsets)[b], offsets_[b]);
    EXPECT_EQ(out.Tuple()[2].dtype, DType::kU32);
  }
}

TEST_F(LogitsPostprocessTest, HiddenStateModesAppendTheirTensors) {
  const std::vector<float> captured(kRows * kHidden, 0.5f);
  const std::vector<MatrixView<const float>> captures(
      2, MatrixView<const float>(captured.data(), kRows, kHidden));
  for (ReturnLogits logits : {ReturnLogits::kLastToken, ReturnLogits::kVariable, ReturnLogits::kAll}) {
    const size_t prefix = logits == ReturnLogits::kLastToken ? 1 : 3;
    LogitsPostprocessInputs in = Inputs();
    in.return_logits = logits;
    in.capture_hidden_states = captures;
    const auto run = [&](ReturnHiddenStates mode) {
      in.return_hidden_states = mode;
      const auto out = Run(in).value();
      EXPECT_EQ(out.Tuple().size(), prefix + out.hidden_states.size());
      return std::vector(out.hidden_states.begin(), out.hidden_states.end());
    };
    EXPECT_TRUE(run(ReturnHiddenStates::kNone).empty());
    for (ReturnHiddenStates mode : {ReturnHiddenStates::kLast, ReturnHiddenStates::kLastPerDevice}) {
      const auto states = run(mode);
      ASSERT_EQ(states.size(), 1u);
      ASSERT_EQ(states[0].rows, 3);
      // Before the norm, although the logits come from behind it.
      EXPECT_EQ(std::memcmp(states[0].Row(1), h_.data() + 3 * kHidden, kHidden * sizeof(float)), 0);
    }
    const auto all = run(ReturnHiddenStates::kAll);
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(std::memcmp(all[0].data, h_.data(), h_.size() * sizeof(float)), 0);
    const auto normalized = run(ReturnHiddenStates::kAllNormalized);
    std::vector<float> want(h_.size());
    norm_.Apply(context_, in.h, {want.data(), kRows, kHidden});
    EXPECT_EQ(std::memcmp(normalized[0].data, want.data(), want.size() * sizeof(float)), 0);
    const auto layers = run(ReturnHiddenStates::kSelectedLayers);
    ASSERT_EQ(layers.size(), 2u);
    EXPECT_EQ(layers[1].Row(8)[kHidden - 1], 0.5f);
  }
}

TEST_F(LogitsPostprocessTest, ScalesThenCapsThenMasksThePaddedTail) {
  LogitsPostprocessInputs in = Inputs();
  in.return_logits = ReturnLogits::kAll;
  in.logits_scaling = 3.0f;
  in.logit_softcapping = 5.0f;
  in.unpadded_vocab = 2050;
  const auto out = Run(in).value();
  ExpectRows(*out.logits, {0, 1, 2, 3, 4, 5, 6, 7, 8}, in);
  EXPECT_EQ(out.last_logits->Row(0)[2050], -INFINITY);
  EXPECT_LT(std::fabs(out.last_logits->Row(0)[2049]), 5.0f);
}

// Gathers tiles into a matrix, and the logits of chosen ids.
class MatrixSink : public LogitsSink {
 public:
  MatrixSink(MatrixView<float> out, std::vector<int32_t> ids) : out_(out), ids_(std::move(ids)) {}
  std::span<const int32_t> BeginRows(int64_t begin, int64_t end) override {
    begin_ = begin;
    return std::span(ids_).subspan(begin, end - begin);
  }
  void TakeChosen(std::span<const float> logits) override {
    chosen.insert(chosen.end(), logits.begin(), logits.end());
  }
  void TakeTile(int64_t tile, MatrixView<const float> logits, int) override {
    for (int64_t r = 0; r < logits.rows; ++r) {
      std::copy_n(logits.Row(r), logits.cols, out_.Row(begin_ + r) + tile * kVocabTile);
    }
  }
  Status EndRows() override {
    ++blocks;
    return {};
  }
  std::vector<float> chosen;
  int blocks = 0;

 private:
  MatrixView<float> out_;
  std::vector<int32_t> ids_;
  int64_t begin_ = 0;
};

TEST_F(LogitsPostprocessTest, StreamedTilesAreTheMaterialisedBits) {
  LogitsPostprocessInputs in = Inputs();
  in.return_logits = ReturnLogits::kAll;
  in.logits_scaling = 1.5f;
  in.logit_softcapping = 30.0f;
  const std::vector<int32_t> ids{0, 31, 32, 1023, 1024, 2047, 2048, 2099, 5};
  std::vector<float> streamed(kRows * kVocab);
  MatrixSink sink({streamed.data(), kRows, kVocab}, ids);
  in.sink = &sink;
  EXPECT_TRUE(Run(in).value().Tuple().empty());
  in.sink = nullptr;
  const auto whole = Run(in).value();
  EXPECT_EQ(std::memcmp(streamed.data(), whole.logits->data, streamed.size() * sizeof(float)), 0);
  ASSERT_EQ(sink.chosen.size(), ids.size());
  for (size_t r = 0; r < ids.size(); ++r) EXPECT_EQ(sink.chosen[r], streamed[r * kVocab + ids[r]]) << r;
  EXPECT_EQ(sink.blocks, 1);
}

TEST_F(LogitsPostprocessTest, EmptyBatchGivesEmptyTensors) {
  LogitsPostprocessInputs in = Inputs();
  const std::vector<uint32_t> none{0};
  in.h = MatrixView<const float>(h_.data(), 0, kHidden);
  in.input_row_offsets = none;
  in.return_logits = ReturnLogits::kVariable;
  const auto out = Run(in).value();
  EXPECT_EQ(out.last_logits->rows, 0);
  EXPECT_EQ(out.last_logits->cols, kVocab);
  ASSERT_EQ(out.variable_offsets->size(), 1u);
  EXPECT_EQ((*out.variable_offsets)[0], 0);
}

TEST_F(LogitsPostprocessTest, RefusesWhatItCannotDoBeforeComputing) {
  const auto error = [&](auto change) {
    LogitsPostprocessInputs in = Inputs();
    change(in);
    const auto out = Run(in);
    return out ? std::string("accepted") : out.error().message;
  };
  using In = LogitsPostprocessInputs;
  const std::vector<uint32_t> zero_length{0, 3, 3, 9}, too_short{0, 3}, no_offsets{};
  EXPECT_EQ(error([&](In& in) { in.input_row_offsets = zero_length; }),
            "input_row_offsets: got 3 then 3, want at least one row (sequence 1)");
  EXPECT_EQ(error([&](In& in) { in.input_row_offsets = too_short; }),
            "h: got 9 rows, want the 3 of input_row_offsets");
  EXPECT_NE(error([&](In& in) { in.input_row_offsets = no_offsets; }), "accepted");
  const auto variable = [&](int64_t n) {
    return error([n](In& in) {
      in.return_logits = ReturnLogits::kVariable;
      in.return_n_logits = n;
    });
  };
  EXPECT_EQ(variable(2), "return_n_logits: got 2, want at most the 1 rows of sequence 1");
  EXPECT_EQ(variable(0), "return_n_logits: got 0, want at least 1");
  EXPECT_NE(error([](In& in) { in.logits_scaling = 0.0f; }), "accepted");
  EXPECT_NE(error([](In& in) { in.logit_softcapping = 0.0f; }), "accepted");
  EXPECT_NE(error([](In& in) { in.lm_head = nullptr; }), "accepted");
  EXPECT_NE(error([](In& in) { in.h.cols = 40; }), "accepted");
  EXPECT_NE(error([](In& in) {
              in.norm = nullptr;
              in.return_hidden_states = ReturnHiddenStates::kAllNormalized;
            }),
            "accepted");
  EXPECT_NE(error([](In& in) { in.return_hidden_states = ReturnHiddenStates::kSelectedLayers; }), "accepted");
}

}  // namespace
}  // namespace plumbline

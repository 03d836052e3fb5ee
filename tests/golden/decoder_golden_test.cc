// Hidden states of every layer and logits against the reference's (tests/golden/models/README.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>

#include "golden_files.h"
#include "plumbline/io/mapped_file.h"
#include "plumbline/io/safetensors.h"
#include "plumbline/nn/distributed_logits_postprocess.h"
#include "plumbline/pipelines/kv_page_memory.h"
#include "plumbline/pipelines/runtime.h"

namespace plumbline {
namespace {

const std::filesystem::path kGolden = GoldenFolder();

// Both sides are float32 over a few layers; states reach some tens.
constexpr float kTolerance = 1e-4f;
constexpr float kRelative = 2e-5f;

class GoldenFile {
 public:
  explicit GoldenFile(const std::filesystem::path& path) : file_(MappedFile::Open(path.string()).value()) {
    const std::vector<RawTensor> tensors = ParseSafetensors(file_.bytes(), path.string()).value();
    for (const RawTensor& tensor : tensors) tensors_.emplace(tensor.name, tensor);
  }
  bool Has(const std::string& name) const { return tensors_.contains(name); }
  template <typename T>
  std::vector<T> Values(const std::string& name) const {
    const RawTensor& tensor = tensors_.at(name);
    std::vector<T> values(tensor.Elements());
    std::memcpy(values.data(), tensor.data, values.size() * sizeof(T));
    return values;
  }

 private:
  MappedFile file_;
  std::map<std::string, RawTensor> tensors_;
};

void ExpectNear(std::span<const float> got, const std::vector<float>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  float scale = 0.0f, worst = 0.0f;
  for (float value : want) scale = std::max(scale, std::fabs(value));
  for (size_t i = 0; i < want.size(); ++i) worst = std::max(worst, std::fabs(got[i] - want[i]));
  EXPECT_LE(worst, kTolerance + kRelative * scale) << what << ", values up to " << scale;
}

// One sequence in one step, every layer captured.
struct Observed {
  std::vector<std::vector<float>> hidden;  // [layers][tokens * hidden]
  std::vector<float> normalized;           // [tokens * hidden]
  std::vector<float> logits;               // [vocab] after the last token
};

Observed RunSequence(const Runtime& runtime, const std::vector<int32_t>& tokens) {
  const Decoder& decoder = runtime.decoder();
  const DecoderConfig& config = runtime.config();
  const RankContext& rank = runtime.rank().context();
  const auto rows = static_cast<int64_t>(tokens.size());
  KvPageMemory memory = KvPageMemory::Reserve(decoder.Kv(64), (rows + 63) / 64, 0, 1).value();
  std::vector<void*> pages;
  for (uint32_t page = 0; page < memory.total_pages(); ++page) pages.push_back(memory.Page(page));
  DecoderWorkspace workspace =
      DecoderWorkspace::Allocate(config, decoder.shard, decoder.Workspace(rows, rows)).value();

  std::vector<int32_t> positions(rows), layers(config.layers);
  for (int64_t i = 0; i < rows; ++i) positions[i] = static_cast<int32_t>(i);
  Observed run;
  run.hidden.assign(config.layers, std::vector<float>(rows * config.hidden));
  std::vector<MatrixView<float>> views;
  for (int64_t i = 0; i < config.layers; ++i) {
    layers[i] = static_cast<int32_t>(i);
    views.emplace_back(run.hidden[i].data(), rows, config.hidden);
  }
  const std::vector<int32_t> offsets{0, static_cast<int32_t>(rows)}, lengths{0};
  const std::vector<void* const*> page_tables{pages.data()};
  const std::vector<int64_t> ids(tokens.begin(), tokens.end());
  const std::vector<std::span<const float>> constants = decoder.Constants();
  const DecoderStep step{.tokens = ids,
                         .own = {0, rows},
                         .positions = positions,
                         .batch = {.row_offsets = offsets, .cache_lengths = lengths, .pages = page_tables},
                         .declared = {.constants = constants}};
  EXPECT_TRUE(decoder.Forward(rank, memory.layout(), step, {.layers = layers, .hidden = views}, workspace));

  const std::vector<uint32_t> row_offsets{0, static_cast<uint32_t>(rows)};
  LogitsWorkspace head;
  const auto out =
      distributed_logits_postprocess(rank,
                                     {.h = workspace.hidden.Rows(0, rows),
                                      .input_row_offsets = row_offsets,
                                      .lm_head = &decoder.head,
                                      .norm = &decoder.final_norm,
                                      .return_hidden_states = ReturnHiddenStates::kAllNormalized},
                                     head)
          .value();
  run.logits.assign(out.last_logits->data, out.last_logits->data + config.vocab);
  run.normalized.assign(out.hidden_states[0].data, out.hidden_states[0].data + rows * config.hidden);
  return run;
}

std::unique_ptr<Runtime> Load(const std::string& path) {
  const RuntimeOptions options{.compute = Compute::kF32, .threads = 2, .isa = SupportedIsas().back()};
  auto runtime = Runtime::Load(path, options, nullptr);
  EXPECT_TRUE(runtime.has_value()) << runtime.error().message;
  return runtime ? std::move(*runtime) : nullptr;
}

class TinyModelGolden : public testing::TestWithParam<std::string> {};

TEST_P(TinyModelGolden, HiddenStatesOfEveryLayerAndLogits) {
  const std::filesystem::path folder = kGolden / "models" / GetParam();
  const GoldenFile golden(folder / "golden.safetensors");
  const std::filesystem::path gguf = folder / "model.gguf";
  const auto runtime = Load((std::filesystem::exists(gguf) ? gguf : folder).string());
  ASSERT_NE(runtime, nullptr);
  int compared = 0;
  for (int i = 0; i < 6; ++i) {
    const std::string prefix = "seq" + std::to_string(i) + ".";
    const Observed run = RunSequence(*runtime, golden.Values<int32_t>(prefix + "tokens"));
    ExpectNear(run.logits, golden.Values<float>(prefix + "last_logits"), prefix + "last_logits");
    if (!golden.Has(prefix + "hidden")) continue;
    std::vector<float> hidden;
    for (const auto& layer : run.hidden) hidden.insert(hidden.end(), layer.begin(), layer.end());
    ExpectNear(hidden, golden.Values<float>(prefix + "hidden"), prefix + "hidden");
    ExpectNear(run.normalized, golden.Values<float>(prefix + "normalized"), prefix + "normalized");
    ++compared;
  }
  EXPECT_GE(compared, 3);
}

INSTANTIATE_TEST_SUITE_P(Models, TinyModelGolden, testing::ValuesIn(TinyModels()),
                         [](const auto& info) { return info.param; });

TEST(DefaultModelGolden, HiddenStatesAndLogits) {
  const auto runtime = Load(DefaultModel());
  ASSERT_NE(runtime, nullptr);
  const GoldenFile golden(kGolden / "default_model/golden.safetensors");
  for (int i = 0; i < 3; ++i) {
    const std::string prefix = "text" + std::to_string(i) + ".";
    const Observed run = RunSequence(*runtime, golden.Values<int32_t>(prefix + "tokens"));
    for (int layer : {0, 14, 29}) {
      const std::string name = prefix + "hidden" + std::to_string(layer);
      ExpectNear(run.hidden[layer], golden.Values<float>(name), name);
    }
    ExpectNear(run.normalized, golden.Values<float>(prefix + "normalized"), prefix + "normalized");
    std::vector<float> sampled;
    for (size_t id = 0; id < run.logits.size(); id += 64) sampled.push_back(run.logits[id]);
    ExpectNear(sampled, golden.Values<float>(prefix + "last_logits_every_64"), prefix + "last_logits");
  }
}

}  // namespace
}  // namespace plumbline

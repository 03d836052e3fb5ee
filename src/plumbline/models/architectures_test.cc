#include "plumbline/models/architectures.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "plumbline/io/safetensors.h"

namespace plumbline {
namespace {

using nlohmann::json;

// A Hugging Face folder with this configuration and one tensor nobody reads.
class ArchitecturesTest : public testing::Test {
 protected:
  ArchitecturesTest()
      : folder_(std::filesystem::temp_directory_path() /
                ("plumbline_models_" + std::to_string(getpid()) + "_" +
                 testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(folder_);
    auto writer = SafetensorsWriter::Create((folder_ / "model.safetensors").string(),
                                            {{.name = "x", .dtype = DType::kF32, .shape = {1}}}, {})
                      .value();
    const float zero = 0;
    EXPECT_TRUE(writer->Write(0, 0, {reinterpret_cast<const uint8_t*>(&zero), sizeof zero}));
    EXPECT_TRUE(writer->Close());
  }
  ~ArchitecturesTest() override { std::filesystem::remove_all(folder_); }

  Result<DecoderConfig> Read(const json& changes) {
    json config = {{"model_type", "llama"},    {"hidden_size", 64},
                   {"num_hidden_layers", 3},   {"num_attention_heads", 4},
                   {"num_key_value_heads", 2}, {"intermediate_size", 128},
                   {"vocab_size", 300},        {"max_position_embeddings", 512},
                   {"rms_norm_eps", 1e-5}};
    config.merge_patch(changes);
    std::ofstream(folder_ / "config.json") << config;
    checkpoint_ = Checkpoint::Open(folder_.string()).value();
    return ReadDecoderConfig(ModelSource(*checkpoint_));
  }
  std::string ErrorOf(const json& changes) {
    const Result<DecoderConfig> config = Read(changes);
    return config ? "accepted" : config.error().message;
  }

  std::filesystem::path folder_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

TEST_F(ArchitecturesTest, ReadsSizesAndDefaults) {
  const DecoderConfig c = Read(json::object()).value();
  EXPECT_EQ(c.architecture, "llama");
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.QueryWidth(), 64);
  EXPECT_EQ(c.KvWidth(), 32);
  EXPECT_FALSE(c.qkv_bias || c.output_bias || c.mlp_bias || c.qk_norm || c.tied_head);
  EXPECT_EQ(c.window, std::vector<int32_t>(3, 0));
  EXPECT_EQ(c.rope_theta, 10000.0);
}

TEST_F(ArchitecturesTest, FamiliesDifferByConfiguration) {
  EXPECT_TRUE(Read({{"attention_bias", true}}).value().output_bias);
  const DecoderConfig qwen2 = Read({{"model_type", "qwen2"}, {"tie_word_embeddings", true}}).value();
  EXPECT_TRUE(qwen2.qkv_bias && qwen2.tied_head);
  EXPECT_FALSE(qwen2.output_bias);
  EXPECT_TRUE(Read({{"model_type", "qwen3"}, {"head_dim", 24}}).value().qk_norm);
}

TEST_F(ArchitecturesTest, SlidingWindowsFollowTheReferencesDefaults) {
  const auto windows = [&](const json& changes) { return Read(changes).value().window; };
  using W = std::vector<int32_t>;
  EXPECT_EQ(windows({{"model_type", "mistral"}, {"sliding_window", 7}}), (W{7, 7, 7}));
  EXPECT_EQ(windows({{"model_type", "mistral"}}), (W{4096, 4096, 4096}));
  json with_null =
      json::parse(R"({"model_type": "qwen2", "use_sliding_window": false, "sliding_window": 9})");
  EXPECT_EQ(windows(with_null), (W{0, 0, 0}));
  EXPECT_EQ(windows({{"model_type", "qwen2"},
                     {"use_sliding_window", true},
                     {"sliding_window", 9},
                     {"max_window_layers", 2}}),
            (W{0, 0, 9}));
  EXPECT_EQ(windows({{"model_type", "qwen3"},
                     {"use_sliding_window", true},
                     {"sliding_window", 9},
                     {"layer_types", {"sliding_attention", "full_attention", "sliding_attention"}}}),
            (W{9, 0, 9}));
}

TEST_F(ArchitecturesTest, ExpertsAndSparseLayers) {
  const json experts = {{"num_local_experts", 8}, {"num_experts_per_tok", 2}};
  json mixtral = experts;
  mixtral["model_type"] = "mixtral";
  const DecoderConfig m = Read(mixtral).value();
  EXPECT_EQ(m.experts.count, 8);
  EXPECT_EQ(m.experts.per_token, 2);
  EXPECT_EQ(m.experts.intermediate, 128);
  EXPECT_TRUE(m.experts.normalize);
  EXPECT_EQ(m.rope_theta, 1e6);
  EXPECT_EQ(m.sparse, (std::vector<uint8_t>{1, 1, 1}));
  EXPECT_FALSE(m.AnyDense());

  json qwen = {{"model_type", "qwen3_moe"},   {"num_experts", 8},         {"num_experts_per_tok", 3},
               {"moe_intermediate_size", 24}, {"decoder_sparse_step", 1}, {"mlp_only_layers", {1}}};
  const DecoderConfig q = Read(qwen).value();
  EXPECT_TRUE(q.qk_norm);
  EXPECT_EQ(q.experts.count, 8);
  EXPECT_EQ(q.experts.intermediate, 24);
  EXPECT_FALSE(q.experts.normalize);
  EXPECT_EQ(q.sparse, (std::vector<uint8_t>{1, 0, 1}));
  EXPECT_TRUE(q.AnyDense());
  EXPECT_TRUE(q.Sparse(0) && !q.Sparse(1));
  qwen.merge_patch({{"decoder_sparse_step", 2}, {"norm_topk_prob", true}, {"mlp_only_layers", nullptr}});
  EXPECT_EQ(Read(qwen).value().sparse, (std::vector<uint8_t>{0, 1, 0}));
  EXPECT_TRUE(Read(qwen).value().experts.normalize);
  EXPECT_EQ(Read(qwen).value().window, std::vector<int32_t>(3, 0));
  qwen.merge_patch({{"use_sliding_window", true}, {"sliding_window", 9}});
  EXPECT_EQ(Read(qwen).value().window, std::vector<int32_t>(3, 9));

  for (const json& bad : std::vector<json>{{{"num_experts_per_tok", 9}},
                                           {{"num_experts_per_tok", 0}},
                                           {{"num_experts", 0}},
                                           {{"num_experts", 1 << 20}},
                                           {{"moe_intermediate_size", -1}},
                                           {{"decoder_sparse_step", 0}},
                                           {{"mlp_only_layers", {3}}},
                                           {{"mlp_only_layers", "1"}}}) {
    json changed = qwen;
    changed.merge_patch(bad);
    EXPECT_NE(ErrorOf(changed), "accepted") << bad;
  }
  EXPECT_NE(ErrorOf(experts).find("num_experts: got 8, want a dense decoder"), std::string::npos);
}

TEST_F(ArchitecturesTest, RopeScalingInBothSpellings) {
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 128},
                       {"rope_theta", 5e5}};
  const DecoderConfig old_style = Read({{"rope_scaling", llama3}, {"rope_theta", 5e5}}).value();
  const DecoderConfig new_style = Read({{"rope_parameters", llama3}}).value();
  for (const DecoderConfig& c : {old_style, new_style}) {
    EXPECT_EQ(c.rope_scaling.type, RopeScaling::Type::kLlama3);
    EXPECT_EQ(c.rope_scaling.original_max_position, 128);
    EXPECT_EQ(c.rope_theta, 5e5);
  }
  EXPECT_EQ(Read({{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}).value().rope_scaling.factor, 2.0);
}

TEST_F(ArchitecturesTest, RefusesWhatItCannotRunExactly) {
  EXPECT_NE(ErrorOf({{"model_type", "mamba"}})
                .find("got 'mamba', want one of llama, mistral, mixtral, qwen2, qwen3"),
            std::string::npos);
  EXPECT_NE(ErrorOf({{"num_key_value_heads", 3}}).find("num_key_value_heads: got 3"), std::string::npos);
  EXPECT_NE(ErrorOf({{"head_dim", 15}}).find("head_dim: got 15"), std::string::npos);
  EXPECT_NE(ErrorOf({{"hidden_size", "64"}}).find("hidden_size: got a string"), std::string::npos);
  for (const json& bad : std::vector<json>{
           {{"hidden_size", -1}},
           {{"num_hidden_layers", 0}},
           {{"vocab_size", 1e18}},
           {{"num_hidden_layers", 1 << 30}},
           {{"rms_norm_eps", 0.0}},
           {{"hidden_act", "relu"}},
           {{"quantization_config", {{"bits", 4}}}},
           {{"partial_rotary_factor", 0.5}},
           {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}},
           {{"rope_scaling", {{"type", "linear"}, {"factor", -2.0}}}},
           {{"rope_theta", 0}},
           {{"num_local_experts", 8}},
           {{"model_type", 3}},
           {{"model_type", "qwen2"}, {"use_sliding_window", true}, {"layer_types", {"full_attention"}}}}) {
    EXPECT_NE(ErrorOf(bad), "accepted") << bad;
  }
}

}  // namespace
}  // namespace plumbline

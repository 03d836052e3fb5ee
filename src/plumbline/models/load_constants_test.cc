#include "plumbline/models/load_constants.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "plumbline/io/safetensors.h"
#include "plumbline/models/rope_constants.h"

namespace plumbline {
namespace {

// A checkpoint with one tensor, table [2, 3] = 1 ... 6.
class LoadConstantsTest : public testing::Test {
 protected:
  LoadConstantsTest()
      : folder_(std::filesystem::temp_directory_path() / fmt::format("plumbline_constants_{}", getpid())) {
    std::filesystem::create_directories(folder_);
    auto writer = SafetensorsWriter::Create((folder_ / "model.safetensors").string(),
                                            {{.name = "table", .dtype = DType::kF32, .shape = {2, 3}}}, {})
                      .value();
    const float values[] = {1, 2, 3, 4, 5, 6};
    EXPECT_TRUE(writer->Write(0, 0, {reinterpret_cast<const uint8_t*>(values), sizeof values}));
    EXPECT_TRUE(writer->Close());
    std::ofstream(folder_ / "config.json") << R"({"model_type": "llama"})";
    checkpoint_ = Checkpoint::Open(folder_.string()).value();
  }
  ~LoadConstantsTest() override { std::filesystem::remove_all(folder_); }

  Result<std::vector<std::vector<float>>> Load(std::vector<DeclaredConstant> constants) {
    DecoderDeclaration declares;
    declares.constants = std::move(constants);
    return LoadConstants(ModelSource(*checkpoint_), declares);
  }
  static Result<std::vector<float>> Sum(std::span<const float> tensor) {
    float sum = 0;
    for (float value : tensor) sum += value;
    return std::vector<float>{sum};
  }

  std::filesystem::path folder_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

TEST_F(LoadConstantsTest, TablesAreTheCheckpointsOrMadeFromIt) {
  const DeclaredConstant whole{.name = "a", .shape = {2, 3}, .tensor = "table", .tensor_shape = {2, 3}};
  const DeclaredConstant sum{
      .name = "b", .shape = {1}, .tensor = "table", .tensor_shape = {2, 3}, .make = Sum};
  const DeclaredConstant made{.name = "c", .shape = {1}, .make = Sum};
  EXPECT_EQ(Load({whole, sum, made}).value(),
            (std::vector<std::vector<float>>{{1, 2, 3, 4, 5, 6}, {21}, {0}}));
  DecoderDeclaration declares;
  declares.constants = {whole, made};
  EXPECT_EQ(ConstantTensors(declares), std::vector<std::string>{"table"});
}

TEST_F(LoadConstantsTest, OtherShapesAndMissingTensorsAreRefused) {
  EXPECT_EQ(Load({{.name = "a", .shape = {2}, .make = Sum}}).error().message,
            "constant a: got 1 elements, want 2 (declared constants)");
  EXPECT_EQ(Load({{.name = "a", .shape = {6}, .tensor = "table", .tensor_shape = {6}}}).error().message,
            fmt::format("tensor table: got shape [2, 3], want [6] ({})", folder_.string()));
  EXPECT_FALSE(Load({{.name = "a", .shape = {6}, .tensor = "gone", .tensor_shape = {6}}}).has_value());
  const auto refuse = [](std::span<const float>) -> Result<std::vector<float>> {
    return InvalidInput("table: got these, want others");
  };
  EXPECT_EQ(Load({{.name = "a", .shape = {6}, .make = refuse}}).error().message,
            "table: got these, want others");
}

TEST(RopeConstantsTest, FrequenciesAreThoseOfTheConfigurationDividedByFactors) {
  DecoderConfig config{.head_dim = 8, .rope_theta = 10000.0};
  DeclareRope("", config);
  DeclareRope("factors", config);
  const auto& constants = config.declares.constants;
  ASSERT_EQ(constants.size(), 4u);
  const std::vector<float> plain = constants[0].make({}).value();
  EXPECT_EQ(plain, MakeRopeFrequencies(8, 10000.0, {}).inv_freq);
  EXPECT_EQ(constants[1].make({}).value(), std::vector<float>{1.0f});
  const std::vector<float> factors = {1, 2, 3, 4}, zero = {1, 2, 0, 4};
  const std::vector<float> divided = constants[2].make(factors).value();
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(divided[i], plain[i] / factors[i]);
  EXPECT_EQ(constants[2].make(zero).error().message, "tensor factors: got 0, want factors above 0");
}

}  // namespace
}  // namespace plumbline

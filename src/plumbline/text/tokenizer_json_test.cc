#include "plumbline/text/tokenizer_json.h"

#include <gtest/gtest.h>

#include <string>

#include "plumbline/text/tokenizer_test_util.h"

namespace plumbline {
namespace {

using Json = nlohmann::json;
using Spec = TokenizerSpec;

Json Load(const std::string& name) { return testing::ReadCorpusJson(name + "/tokenizer.json"); }

TEST(TokenizerJson, RecognisesKnownSplitting) {
  const auto pre_tokenizer = [](const std::string& name) {
    return ParseTokenizerJson(Load(name).dump(), name).value().pre_tokenizer;
  };
  EXPECT_EQ(pre_tokenizer("gpt2"), Spec::PreTokenizer::kGpt2);
  EXPECT_EQ(pre_tokenizer("llama3"), Spec::PreTokenizer::kLlama3);
  EXPECT_EQ(pre_tokenizer("qwen2"), Spec::PreTokenizer::kQwen2);
  EXPECT_EQ(pre_tokenizer("smollm"), Spec::PreTokenizer::kSmolLm);
  EXPECT_EQ(pre_tokenizer("deepseek"), Spec::PreTokenizer::kCustomRegex);
  EXPECT_EQ(pre_tokenizer("llama2"), Spec::PreTokenizer::kNone);
}

TEST(TokenizerJson, ReadsMergesOfEitherForm) {
  Json json = Load("gpt2");
  const Spec pairs = ParseTokenizerJson(json.dump(), "t").value();
  for (Json& merge : json["model"]["merges"])
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  json["model"]["merges"].insert(json["model"]["merges"].begin(), "#version: 0.2");
  EXPECT_EQ(ParseTokenizerJson(json.dump(), "t").value().merges, pairs.merges);
}

// Replaces the value at a JSON pointer and expects an error with all of `parts`.
void ExpectRefused(const std::string& name, const char* pointer, Json value,
                   std::initializer_list<const char*> parts) {
  Json json = Load(name);
  json[Json::json_pointer(pointer)] = std::move(value);
  const auto spec = ParseTokenizerJson(json.dump(), "dir/tokenizer.json");
  ASSERT_FALSE(spec.has_value()) << name << " " << pointer;
  EXPECT_EQ(spec.error().code, ErrorCode::kInvalidInput);
  EXPECT_NE(spec.error().message.find("dir/tokenizer.json"), std::string::npos) << spec.error().message;
  for (const char* part : parts) {
    EXPECT_NE(spec.error().message.find(part), std::string::npos)
        << spec.error().message << " lacks " << part;
  }
}

TEST(TokenizerJson, NamesWhatItDoesNotKnow) {
  ExpectRefused("gpt2", "/version", "2.0", {"2.0"});
  ExpectRefused("gpt2", "/model/type", "WordPiece", {"model", "WordPiece"});
  ExpectRefused("gpt2", "/model/type", "Unigram", {"model", "Unigram"});
  ExpectRefused("gpt2", "/model/dropout", 0.1, {"dropout"});
  ExpectRefused("gpt2", "/model/end_of_word_suffix", "</w>", {"end_of_word_suffix", "</w>"});
  ExpectRefused("gpt2", "/model/continuing_subword_prefix", "##", {"continuing_subword_prefix"});
  ExpectRefused("gpt2", "/normalizer", {{"type", "Lowercase"}}, {"normalizer", "Lowercase"});
  ExpectRefused("gpt2", "/normalizer", {{"type", "NFKC"}}, {"normalizer", "NFKC"});
  ExpectRefused("gpt2", "/pre_tokenizer", {{"type", "BertPreTokenizer"}},
                {"pre_tokenizer", "BertPreTokenizer"});
  ExpectRefused("gpt2", "/pre_tokenizer", nullptr, {"neither ByteLevel"});
  ExpectRefused("llama3", "/pre_tokenizer/pretokenizers/0/behavior", "Removed", {"pre_tokenizer", "Removed"});
  ExpectRefused("llama3", "/pre_tokenizer/pretokenizers/0/invert", true, {"invert true"});
  ExpectRefused("llama3", "/pre_tokenizer/pretokenizers/1/add_prefix_space", true, {"add_prefix_space"});
  ExpectRefused("llama3", "/pre_tokenizer/pretokenizers/2", {{"type", "Digits"}}, {"Digits after ByteLevel"});
  ExpectRefused("gpt2", "/post_processor", {{"type", "BertProcessing"}},
                {"post_processor", "BertProcessing"});
  ExpectRefused("gpt2", "/decoder", {{"type", "WordPiece"}}, {"decoder", "WordPiece"});
  ExpectRefused("gpt2", "/decoder", nullptr, {"decoder", "none"});
  ExpectRefused("llama2", "/decoder", {{"type", "Metaspace"}}, {"decoder", "Metaspace"});
  ExpectRefused("llama2", "/decoder/decoders/3/stop", 1, {"decoder", "Strip"});
  ExpectRefused("llama2", "/decoder/decoders/0/content", "_", {"decoder"});
  ExpectRefused("llama2", "/normalizer/normalizers/0/prepend", "_", {"normalizer", "Prepend"});
  ExpectRefused("mistral", "/pre_tokenizer/prepend_scheme", "last", {"Metaspace", "last"});
  ExpectRefused("mistral", "/pre_tokenizer/replacement", "_", {"Metaspace"});
  ExpectRefused("mistral", "/normalizer", {{"type", "NFC"}}, {"NFC"});
}

TEST(TokenizerJson, RefusesIdsThatHaveTwoReadings) {
  ExpectRefused("gpt2", "/model/vocab/the", 5, {"model", "one token an id"});
  ExpectRefused("gpt2", "/model/vocab/the", -1, {"model", "id -1"});
  ExpectRefused("gpt2", "/model/vocab/the", 1 << 30, {"model", "id 1073741824"});
  ExpectRefused("gpt2", "/model/vocab/the", "5", {"model"});
  ExpectRefused("gpt2", "/added_tokens/0/id", 3, {"added_tokens", "id 3"});
  ExpectRefused("gpt2", "/added_tokens/1/id", 5000, {"added_tokens", "id 5000"});
  ExpectRefused("llama2", "/model/unk_token", "<none>", {"unk_token"});
  ExpectRefused("llama3", "/post_processor/processors/1/single/1", {{"SpecialToken", {{"id", "<none>"}}}},
                {"<none>"});
  ExpectRefused("llama3", "/post_processor/processors/1/single/0", {{"Sequence", {{"id", "B"}}}},
                {"2 sequences"});
}

TEST(TokenizerJson, ReadsAnUnknownTokenThatIsNeverNeeded) {
  Json json = Load("gpt2");
  json["model"]["unk_token"] = "<none>";
  EXPECT_TRUE(ParseTokenizerJson(json.dump(), "t").has_value());
}

TEST(TokenizerJson, RefusesWhatIsNoTokenizer) {
  for (const char* text :
       {"", "null", "[]", "1", "{", "{}", "\"", "{\"model\":", "\xFF", "{\"model\":{\"vocab\":{}}}"}) {
    EXPECT_FALSE(ParseTokenizerJson(text, "t").has_value()) << text;
  }
  const std::string deep = std::string(1'000'000, '[');
  EXPECT_FALSE(ParseTokenizerJson(deep, "t").has_value());
  EXPECT_FALSE(ParseTokenizerJson("{\"a\":" + deep, "t").has_value());
}

// Whatever is cut or changed, the answer is a spec or an error.
TEST(TokenizerJson, SurvivesDamage) {
  for (const std::string name : {"llama3", "llama2", "mistral"}) {
    Json json = Load(name);
    const Json flat = json.flatten();
    size_t index = 0;
    for (const auto& [pointer, value] : flat.items()) {
      if (pointer.starts_with("/model/") && index++ % 500 != 0) continue;
      for (const Json& other :
           {Json(), Json(true), Json(-1), Json("x"), Json::array(), Json::object(), Json(1e300)}) {
        Json damaged = json;
        damaged[Json::json_pointer(pointer)] = other;
        const auto spec = ParseTokenizerJson(damaged.dump(), name);
        if (!spec.has_value()) continue;
        const auto tokenizer = Tokenizer::Create(*spec);
        if (tokenizer.has_value()) (*tokenizer)->Encode("The end\u00e9 <s> 12", true);
      }
    }
    const std::string text = json.dump();
    for (size_t cut = 0; cut < text.size(); cut += 2999) {
      EXPECT_FALSE(ParseTokenizerJson(text.substr(0, cut), name).has_value());
    }
  }
}

}  // namespace
}  // namespace plumbline

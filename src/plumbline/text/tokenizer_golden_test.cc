// What Hugging Face `tokenizers` gives, exactly: see tools/golden/make_tokenizers.py.
#include "plumbline/base/sha256.h"
#include "plumbline/text/tokenizer_test_util.h"

namespace plumbline {
namespace {

using testing::LoadTokenizer;
using testing::ReadCorpusJson;

class TokenizerGolden : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, TokenizerGolden, ::testing::ValuesIn(testing::TokenizerNames()),
                         [](const auto& info) { return info.param; });

TEST_P(TokenizerGolden, Encodes) {
  const auto tokenizer = LoadTokenizer(GetParam());
  ASSERT_NE(tokenizer, nullptr);
  const auto expected = ReadCorpusJson(GetParam() + "/expected.json");
  const std::vector<std::string> texts = testing::CorpusTexts();
  ASSERT_EQ(texts.size(), expected["ids"].size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(tokenizer->Encode(texts[i], false), expected["ids"][i].get<std::vector<int32_t>>()) << texts[i];
  }
}

TEST_P(TokenizerGolden, EncodesWithSpecialTokens) {
  const auto tokenizer = LoadTokenizer(GetParam());
  ASSERT_NE(tokenizer, nullptr);
  const auto expected = ReadCorpusJson(GetParam() + "/expected.json");
  const std::vector<std::string> texts = testing::CorpusTexts();
  for (size_t i = 0; i < expected["ids_special"].size(); ++i) {
    EXPECT_EQ(tokenizer->Encode(texts[i], true), expected["ids_special"][i].get<std::vector<int32_t>>())
        << texts[i];
  }
}

TEST_P(TokenizerGolden, Decodes) {
  const auto tokenizer = LoadTokenizer(GetParam());
  ASSERT_NE(tokenizer, nullptr);
  const auto expected = ReadCorpusJson(GetParam() + "/expected.json");
  const std::vector<std::string> texts = testing::CorpusTexts();
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::vector<int32_t> ids = tokenizer->Encode(texts[i], true);
    EXPECT_EQ(tokenizer->Decode(ids, false), expected["texts"][i].get<std::string>());
    EXPECT_EQ(tokenizer->Decode(ids, true), expected["texts_skip"][i].get<std::string>());
  }
  for (const auto& item : expected["random"]) {
    const auto ids = item["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer->Decode(ids, false), item["text"].get<std::string>()) << item["ids"];
    EXPECT_EQ(tokenizer->Decode(ids, true), item["text_skip"].get<std::string>()) << item["ids"];
  }
}

TEST_P(TokenizerGolden, StreamsWhatItDecodes) {
  const auto tokenizer = LoadTokenizer(GetParam());
  ASSERT_NE(tokenizer, nullptr);
  const auto expected = ReadCorpusJson(GetParam() + "/expected.json");
  StreamingDetokenizer stream(*tokenizer, true);
  for (const auto& item : expected["random"]) {
    std::string text;
    for (const int32_t id : item["ids"].get<std::vector<int32_t>>()) {
      const std::string part = stream.Push(id);
      EXPECT_TRUE(IsValidUtf8(part));
      text += part;
    }
    text += stream.Flush();
    EXPECT_EQ(text, item["text_skip"].get<std::string>());
  }
}

void ExpectAgreement(const std::string& name, uint64_t first_chunk, uint64_t chunks) {
  SCOPED_TRACE(name);
  const auto tokenizer = LoadTokenizer(name);
  ASSERT_NE(tokenizer, nullptr);
  const auto expected = ReadCorpusJson(name + "/expected.json")["generated"];
  ASSERT_LE(first_chunk + chunks, expected.size());
  for (uint64_t chunk = first_chunk; chunk < first_chunk + chunks; ++chunk) {
    Sha256 ids_hash, text_hash;
    for (uint64_t i = chunk * 500; i < (chunk + 1) * 500; ++i) {
      std::vector<int32_t> ids = tokenizer->Encode(testing::GeneratedString(i), false);
      const std::string text = tokenizer->Decode(ids, false);
      ids.push_back(-1);
      ids_hash.Update(ids.data(), ids.size() * sizeof(int32_t));
      text_hash.Update(text.c_str(), text.size() + 1);
    }
    EXPECT_EQ(ids_hash.HexDigest(), expected[chunk][0].get<std::string>()) << "ids of chunk " << chunk;
    EXPECT_EQ(text_hash.HexDigest(), expected[chunk][1].get<std::string>()) << "texts of chunk " << chunk;
  }
}

TEST_P(TokenizerGolden, AgreesOnGeneratedStrings) { ExpectAgreement(GetParam(), 0, 2); }

TEST(SlowTokenizer, AgreesOnManyGeneratedStrings) {
  for (const std::string& name : testing::TokenizerNames()) ExpectAgreement(name, 2, 22);
}

}  // namespace
}  // namespace plumbline

// The default model's tokenizer, read from GGUF metadata, against the ids Hugging Face's gives
// (tools/golden/make_tokenizers.py).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "golden_files.h"
#include "plumbline/io/mapped_file.h"
#include "plumbline/pipelines/checkpoint_text.h"
#include "plumbline/text/tokenizer_test_util.h"

namespace plumbline {
namespace {

TEST(DefaultTokenizerGolden, IdsAndTextsAreTheReferences) {
  const auto checkpoint = Checkpoint::Open(DefaultModel()).value();
  const auto tokenizer = LoadTokenizer(*checkpoint, 49152).value();
  const MappedFile file =
      MappedFile::Open((GoldenFolder() / "default_model/tokenizer_ids.json").string()).value();
  const auto golden = nlohmann::json::parse(file.bytes().begin(), file.bytes().end());
  ASSERT_GE(golden.size(), 100u);
  for (const auto& item : golden) {
    const bool plain = item.contains("text");
    const std::string text =
        plain ? item["text"].get<std::string>() : testing::DecodeBase64(item["base64"].get<std::string>());
    const auto want = item["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer->Encode(text, /*add_special=*/true), want) << text;
    // Nothing is lost between ids and text, but for the few bytes the vocabulary has no token for.
    if (plain && text.find('\x1d') == std::string::npos) {
      EXPECT_EQ(tokenizer->Decode(want, /*skip_special=*/false), text);
    }
    StreamingDetokenizer streaming(*tokenizer, /*skip_special=*/false);
    std::string streamed;
    for (const int32_t id : want) streamed += streaming.Push(id);
    EXPECT_EQ(streamed + streaming.Flush(), tokenizer->Decode(want, /*skip_special=*/false));
  }
}

}  // namespace
}  // namespace plumbline

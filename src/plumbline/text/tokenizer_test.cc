#include "plumbline/text/tokenizer.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "plumbline/text/byte_alphabet.h"
#include "plumbline/text/tokenizer_test_util.h"

namespace plumbline {
namespace {

using Spec = TokenizerSpec;
using Ids = std::vector<int32_t>;

// Bytes 0..255 as tokens 0..255, then "he" and "\u0120he" (" he").
Spec ByteLevelSpec() {
  Spec spec;
  for (const char32_t c : ByteCharacters()) AppendUtf8(c, spec.tokens.emplace_back());
  spec.tokens.insert(spec.tokens.end(), {"he", "\u0120he"});
  spec.merges = {{"h", "e"}, {"\u0120", "he"}};
  return spec;
}

// <unk> <s> </s>, then <0x00>..<0xFF> as 3..258, then pieces with scores.
Spec SpmSpec() {
  Spec spec;
  spec.model = Spec::Model::kSpmBpe;
  spec.tokens = {"<unk>", "<s>", "</s>"};
  for (int b = 0; b < 256; ++b) spec.tokens.push_back(fmt::format("<0x{:02X}>", b));
  for (const char* token : {"\u2581", "a", "b", "\u2581a", "ab", "\u2581ab", "aa"})
    spec.tokens.emplace_back(token);
  spec.scores.assign(spec.tokens.size(), 0);
  for (size_t i = 259; i < spec.tokens.size(); ++i) spec.scores[i] = -static_cast<float>(i);
  spec.added_tokens = {{.id = 0, .content = "<unk>", .special = true},
                       {.id = 1, .content = "<s>", .special = true},
                       {.id = 2, .content = "</s>", .special = true}};
  spec.unk_id = 0;
  spec.byte_fallback = true;
  spec.add_prefix_space = true;
  spec.prefix_ids = {1};
  return spec;
}

std::unique_ptr<Tokenizer> Make(Spec spec) {
  auto tokenizer = Tokenizer::Create(std::move(spec));
  EXPECT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  return tokenizer.has_value() ? *std::move(tokenizer) : nullptr;
}

TEST(Tokenizer, ByteLevel) {
  const auto tokenizer = Make(ByteLevelSpec());
  EXPECT_EQ(tokenizer->vocab_size(), 258);
  EXPECT_EQ(tokenizer->Encode("he he\n", false), (Ids{256, 257, '\n'}));
  EXPECT_EQ(tokenizer->Encode("", true), Ids{});
  EXPECT_EQ(tokenizer->Encode("\xC3", false), (Ids{0xEF, 0xBF, 0xBD}));
  EXPECT_EQ(tokenizer->TokenBytes(257), " he");
  EXPECT_EQ(tokenizer->TokenBytes(0xC3), "\xC3");
  EXPECT_EQ(tokenizer->Decode(Ids{256, 257, 0xC3, 0xA9, 0xC3}, false), "he he\u00e9\ufffd");
}

TEST(Tokenizer, StreamsWholeCharacters) {
  const auto tokenizer = Make(ByteLevelSpec());
  StreamingDetokenizer stream(*tokenizer, false);
  EXPECT_EQ(stream.Push(0xF0), "");
  EXPECT_EQ(stream.Push(0x9F), "");
  EXPECT_EQ(stream.Push(0x98), "");
  EXPECT_EQ(stream.Push(0x80), "\U0001f600");
  EXPECT_EQ(stream.Push(0xF0), "");
  EXPECT_EQ(stream.Push(0x9F), "");
  EXPECT_EQ(stream.Push('a'), "\ufffda");
  EXPECT_EQ(stream.Push(0xE2), "");
  EXPECT_EQ(stream.Flush(), "\ufffd");
  EXPECT_EQ(stream.Flush(), "");
}

TEST(Tokenizer, SentencePieceByScores) {
  const auto tokenizer = Make(SpmSpec());
  const int32_t space = 259, a = 260, b = 261, space_a = 262, ab = 263, space_ab = 264, aa = 265;
  EXPECT_EQ(tokenizer->Encode("ab", true),
            (Ids{1, space_ab}));  // space_a has the better score, then space_ab
  EXPECT_EQ(tokenizer->Encode("bab", false), (Ids{space, b, ab}));
  EXPECT_EQ(tokenizer->Encode("baaa", false), (Ids{space, b, aa, a}));  // the leftmost of equals
  EXPECT_EQ(tokenizer->Encode(" a", false), (Ids{space, space_a}));
  EXPECT_EQ(tokenizer->Encode("\u00e9", false), (Ids{space, 3 + 0xC3, 3 + 0xA9}));
  EXPECT_EQ(tokenizer->Encode("a<s>a", false), (Ids{space_a, 1, space_a}));
  EXPECT_EQ(tokenizer->Decode(Ids{1, space_a, space_a}, true), "a a");
  EXPECT_EQ(tokenizer->Decode(Ids{space, 3 + 0xC3, 3 + 0xA9}, true), "\u00e9");
  // One replacement for each byte of a run that is not UTF-8, as `tokenizers` has it.
  EXPECT_EQ(tokenizer->Decode(Ids{a, 3 + 0xC3, 3 + 0xA9, 3 + 0xC3, b}, true), "a\ufffd\ufffd\ufffdb");
  StreamingDetokenizer stream(*tokenizer, true);
  EXPECT_EQ(stream.Push(1), "");
  EXPECT_EQ(stream.Push(space_a), "a");
  EXPECT_EQ(stream.Push(3 + 0xC3), "");
  EXPECT_EQ(stream.Push(3 + 0xA9), "");
  EXPECT_EQ(stream.Push(space), "\u00e9 ");
  EXPECT_EQ(stream.Flush(), "");
}

TEST(Tokenizer, GivesTheIdsOfSentencePiece) {
  const auto golden = testing::ReadCorpusJson("sentencepiece.json");
  Spec spec;
  spec.model = Spec::Model::kSpmBpe;
  spec.tokens = golden["tokens"].get<std::vector<std::string>>();
  spec.scores = golden["scores"].get<std::vector<float>>();
  spec.unk_id = golden["unk_id"].get<int32_t>();
  spec.byte_fallback = true;
  spec.add_prefix_space = true;
  const auto tokenizer = Make(std::move(spec));
  const std::vector<std::string> texts = testing::CorpusTexts();
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(tokenizer->Encode(texts[i], false), golden["ids"][i].get<Ids>()) << texts[i];
  }
}

TEST(Tokenizer, AnyIdIsSafe) {
  for (Spec spec : {ByteLevelSpec(), SpmSpec()}) {
    spec.tokens.emplace_back();  // an id without a token
    if (!spec.scores.empty()) spec.scores.push_back(0);
    const auto gap = static_cast<int32_t>(spec.tokens.size()) - 1;
    spec.added_tokens.push_back({.id = 1000, .content = "<x>", .special = true});
    const auto tokenizer = Make(std::move(spec));
    EXPECT_EQ(tokenizer->vocab_size(), 1001);
    EXPECT_EQ(tokenizer->Encode("<x>", false), Ids{1000});
    EXPECT_TRUE(tokenizer->IsSpecial(1000));
    for (const int32_t id :
         {-1, gap, 999, 1001, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
      EXPECT_EQ(tokenizer->TokenBytes(id), "");
      EXPECT_FALSE(tokenizer->IsSpecial(id));
      EXPECT_EQ(tokenizer->Decode(Ids{id, 1000, id}, false), "<x>");
    }
    EXPECT_EQ(tokenizer->Decode(Ids{1000}, true), "");
  }
}

TEST(Tokenizer, SpacesThatTokensGoOnOverAreNotCut) {
  Spec spec = SpmSpec();
  spec.tokens.push_back("b\u2581");
  spec.scores.push_back(100);
  const auto tokenizer = Make(std::move(spec));
  EXPECT_EQ(tokenizer->Encode("ab ab", false), (Ids{262, 266, 263}));
}

TEST(Tokenizer, BrokenTokensOfAModelFile) {
  Spec spec = SpmSpec();
  spec.tokens.push_back("a\xFF");
  spec.scores.push_back(5);
  const auto tokenizer = Make(std::move(spec));
  EXPECT_EQ(tokenizer->Decode(Ids{266}, false), "a\ufffd");
  EXPECT_EQ(tokenizer->Encode("ab", false), Ids{264});
}

template <typename Change>
void ExpectRefused(Spec spec, std::string_view part, Change change) {
  change(spec);
  const auto tokenizer = Tokenizer::Create(std::move(spec));
  ASSERT_FALSE(tokenizer.has_value()) << part;
  EXPECT_NE(tokenizer.error().message.find(part), std::string::npos) << tokenizer.error().message;
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kInvalidInput);
}

TEST(Tokenizer, RefusesBadSpecs) {
  ExpectRefused(Spec(), "vocabulary", [](Spec&) {});
  ExpectRefused(ByteLevelSpec(), "added token",
                [](Spec& s) { s.added_tokens = {{.id = -1, .content = "x"}}; });
  ExpectRefused(ByteLevelSpec(), "vocabulary",
                [](Spec& s) { s.added_tokens = {{.id = 1 << 30, .content = "x"}}; });
  ExpectRefused(ByteLevelSpec(), "2000 bytes",
                [](Spec& s) { s.added_tokens = {{.id = 1, .content = std::string(2000, 'x')}}; });
  ExpectRefused(ByteLevelSpec(), "unknown token", [](Spec& s) { s.unk_id = 258; });
  ExpectRefused(ByteLevelSpec(), "first token", [](Spec& s) { s.prefix_ids = {258}; });
  ExpectRefused(ByteLevelSpec(), "last token", [](Spec& s) { s.suffix_ids = {-1}; });
  ExpectRefused(ByteLevelSpec(), "merge 2", [](Spec& s) { s.merges.emplace_back("e", "e"); });
  ExpectRefused(ByteLevelSpec(), "merge 2", [](Spec& s) { s.merges.emplace_back("", "e"); });
  ExpectRefused(ByteLevelSpec(), "byte fallback", [](Spec& s) {
    s.byte_fallback = true;
    s.tokens[7].clear();
  });
  ExpectRefused(ByteLevelSpec(), "regular expression", [](Spec& s) {
    s.pre_tokenizer = Spec::PreTokenizer::kCustomRegex;
    s.custom_regex = "(";
  });
  ExpectRefused(ByteLevelSpec(), "prefix space", [](Spec& s) {
    s.pre_tokenizer = Spec::PreTokenizer::kQwen2;
    s.add_prefix_space = true;
  });
  ExpectRefused(SpmSpec(), "scores", [](Spec& s) { s.scores.pop_back(); });
  ExpectRefused(SpmSpec(), "NaN", [](Spec& s) { s.scores[260] = std::numeric_limits<float>::quiet_NaN(); });
  ExpectRefused(SpmSpec(), "byte token", [](Spec& s) { s.byte_tokens.assign(256, 9999); });
  ExpectRefused(SpmSpec(), "byte tokens", [](Spec& s) { s.byte_tokens.assign(255, -1); });
  ExpectRefused(SpmSpec(), "NFC", [](Spec& s) { s.nfc = true; });
  ExpectRefused(SpmSpec(), "300 bytes", [](Spec& s) {
    s.tokens.emplace_back(300, 'a');
    s.scores.push_back(0);
  });
}

}  // namespace
}  // namespace plumbline

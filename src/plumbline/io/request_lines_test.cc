#include "plumbline/io/request_lines.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

std::string ErrorOf(std::string_view text) {
  const auto documents = ParseRequestLines(text, "in.jsonl");
  return documents ? "accepted" : documents.error().message;
}

TEST(RequestLines, ReadsTheThreeForms) {
  const auto documents =
      ParseRequestLines(
          "{\"id\": \"a\", \"text\": \"caf\\u00e9\"}\n\n{\"id\": 7, \"tokens\": [1, 2]}\r\n"
          "{\"context\": \"c \", \"continuation\": \"d\"}",
          "in.jsonl")
          .value();
  ASSERT_EQ(documents.size(), 3u);
  EXPECT_EQ(documents[0].text, "caf\xc3\xa9");
  EXPECT_EQ(documents[1].id, "7");
  EXPECT_EQ(*documents[1].tokens, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(documents[2].id, "2");
  EXPECT_EQ(documents[2].text, "c ");
  EXPECT_EQ(*documents[2].continuation, "d");
}

TEST(RequestLines, NamesTheLineOfWhatItRefuses) {
  EXPECT_EQ(ErrorOf("{\"text\": \"a\"}\n{\"text\": "),
            "request: got malformed JSON, want one object a line (in.jsonl, line 2)");
  EXPECT_EQ(ErrorOf("[1]"), "request: got a array, want an object (in.jsonl, line 1)");
  EXPECT_EQ(
      ErrorOf("{\"txt\": \"a\"}"),
      "request: got the field 'txt', want id, text, tokens, context or continuation (in.jsonl, line 1)");
  EXPECT_EQ(ErrorOf("{\"id\": \"a\"}"),
            "request: got 0 of text, tokens and context with continuation, want one (in.jsonl, line 1)");
  for (const char* bad : {"{\"text\": 1}", "{\"text\": \"a\", \"tokens\": [1]}", "{\"tokens\": [1.5]}",
                          "{\"tokens\": [-1]}", "{\"tokens\": [4294967296]}", "{\"tokens\": 3}",
                          "{\"context\": \"a\"}", "{\"id\": [], \"text\": \"a\"}", "{\"text\": \"\xff\"}",
                          "{\"id\": 1, \"text\": \"a\"}\n{\"id\": \"1\", \"text\": \"b\"}",
                          "{\"text\": [[[[[[[[[[[[1]]]]]]]]]]]]}"}) {
    EXPECT_NE(ErrorOf(bad), "accepted") << bad;
  }
}

}  // namespace
}  // namespace plumbline

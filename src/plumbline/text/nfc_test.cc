#include "plumbline/text/nfc.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

TEST(Nfc, Composes) {
  EXPECT_EQ(NormalizeNfc(""), "");
  EXPECT_EQ(NormalizeNfc("plain \u00e9"), "plain \u00e9");
  EXPECT_EQ(NormalizeNfc("e\u0301x"), "\u00e9x");
  EXPECT_EQ(NormalizeNfc("\u1e0b\u0323"), "\u1e0d\u0307");
  EXPECT_EQ(NormalizeNfc("a\u0302\u0301"), "\u1ea5");
  EXPECT_EQ(NormalizeNfc("\u0301a"), "\u0301a");
}

TEST(Nfc, ReordersMarks) {
  EXPECT_EQ(NormalizeNfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(NormalizeNfc("a\u0315\u0300\u05ae\u0300b"), "\u00e0\u05ae\u0300\u0315b");
}

TEST(Nfc, ReplacesSingletonsAndKeepsExclusionsApart) {
  EXPECT_EQ(NormalizeNfc("\u212b\u2126\uf900"), "\u00c5\u03a9\u8c48");
  EXPECT_EQ(NormalizeNfc("\u0958"), "\u0915\u093c");
  EXPECT_EQ(NormalizeNfc("\u0344"), "\u0308\u0301");
}

TEST(Nfc, ComposesHangul) {
  EXPECT_EQ(NormalizeNfc("\u1100\u1161\u11a8"), "\uac01");
  EXPECT_EQ(NormalizeNfc("\uac00\u11a8"), "\uac01");
  EXPECT_EQ(NormalizeNfc("\uac01\u11a8"), "\uac01\u11a8");
  EXPECT_EQ(NormalizeNfc("\uac00\u11a7"), "\uac00\u11a7");
}

}  // namespace
}  // namespace plumbline

// Byte-pair encoding: words to ids.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "plumbline/base/status.h"
#include "plumbline/text/id_tables.h"
#include "plumbline/text/string_list.h"
#include "plumbline/text/tokenizer.h"

namespace plumbline {

// Merges `symbols` in place: again and again the adjacent pair of lowest rank (the leftmost of equals)
// becomes one symbol, until no pair has a merge. O(n log n).
void MergeSymbols(const MergeTable& merges, std::vector<int32_t>& symbols);

class BpeModel {
 public:
  // Checks tokens, merges, scores, byte tokens and unk_id of the spec. `spec` must outlive the model.
  static Result<std::unique_ptr<BpeModel>> Create(const TokenizerSpec& spec);

  // Appends the ids of one word: well-formed UTF-8, in the byte-level family as it is, in the SentencePiece
  // family with U+2581 for spaces. `symbols` is scratch.
  void EncodeWord(std::string_view word, std::vector<int32_t>& symbols, std::vector<int32_t>& ids) const;

  // SentencePiece family: where U+2581 follows the character `before`, may the text be cut between the two
  // without changing the ids? True unless some token of a merge goes on over such a place.
  bool CutsBeforeSpace(char32_t before) const;

 private:
  explicit BpeModel(const TokenizerSpec& spec) : spec_(spec) {}
  Status AddTokens();
  Status AddMerges();
  Status AddMergesByScore();
  Status AddByteTokens();
  void FindWholeWords();
  void FindUncuttable();
  // What the word is before any merge.
  void Symbols(std::string_view word, std::vector<int32_t>& symbols) const;
  void ByteSymbols(std::string_view word, std::vector<int32_t>& symbols) const;
  void CharacterSymbols(std::string_view word, std::vector<int32_t>& symbols) const;
  bool AppendByteTokens(std::string_view character, std::vector<int32_t>& symbols) const;

  const TokenizerSpec& spec_;
  StringList keys_;    // [vocab] what a token covers in a word; "" where it can cover nothing
  StringTable vocab_;  // of keys_
  MergeTable merges_;
  std::vector<bool> whole_;                              // [vocab] a word equal to the key is this one token
  std::array<int32_t, 256> byte_ids_{};                  // byte-level: the token of one byte, -1 if none
  std::array<int32_t, 128> ascii_ids_{};                 // SentencePiece: the token of one character
  std::unordered_map<char32_t, int32_t> character_ids_;  // the same beyond ASCII
  std::vector<int32_t> byte_tokens_;                     // byte fallback: [256] or empty
  std::unordered_set<char32_t> uncuttable_;              // characters that a merge joins to U+2581
  bool space_is_token_ = false;
};

}  // namespace plumbline

// Text <-> token ids, with the ids Hugging Face `tokenizers` gives.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plumbline/base/status.h"

namespace plumbline {

// Everything a tokenizer needs, whatever file it came from (tokenizer.json, GGUF metadata).
struct TokenizerSpec {
  enum class Model : uint8_t {
    kByteLevelBpe,  // GPT-2 family: bytes mapped to printable characters, ranked merges
    kSpmBpe,        // SentencePiece BPE: U+2581 for spaces, byte fallback
  };
  // What splits text before BPE (byte-level family).
  enum class PreTokenizer : uint8_t { kNone, kGpt2, kLlama3, kQwen2, kSmolLm, kCustomRegex };

  struct AddedToken {
    int32_t id = 0;
    std::string content;
    bool special = false;  // skipped by the detokenizer on request, never split
    bool lstrip = false, rstrip = false, single_word = false, normalized = false;
  };

  Model model = Model::kByteLevelBpe;
  PreTokenizer pre_tokenizer = PreTokenizer::kGpt2;
  std::string custom_regex;                                 // kCustomRegex
  std::vector<std::string> tokens;                          // [vocab] in the model's alphabet, by id
  std::vector<std::pair<std::string, std::string>> merges;  // by rank; may be derived from scores (kSpmBpe)
  std::vector<float> scores;  // kSpmBpe from GGUF: merge order where merges is empty
  std::vector<AddedToken> added_tokens;
  std::vector<int32_t> byte_tokens;  // kSpmBpe: id of <0xNN> or -1; [256] or empty
  bool byte_fallback = false;
  bool add_prefix_space = false;  // byte-level: HF's ByteLevel; SPM: the dummy prefix
  bool nfc = false;               // normalise to NFC first (Qwen2)
  bool ignore_merges = false;     // a pre-token that is itself in the vocabulary is one token (Llama-3)
  bool fuse_unk = false;
  std::optional<int32_t> unk_id;
  std::vector<int32_t> prefix_ids;  // what encoding with special tokens puts first (BOS)
  std::vector<int32_t> suffix_ids;  // and last (EOS)

  std::vector<std::string> more_regexes;  // kCustomRegex: each splits the pieces of the one before

  // kSpmBpe: who writes U+2581 for spaces, and so where add_prefix_space puts the dummy prefix.
  enum class SpaceMarker : uint8_t {
    kNormalizer,       // before every stretch of text between added tokens, even if it starts with a space
    kMetaspaceFirst,   // at the very start of the text, unless it starts with a space
    kMetaspaceAlways,  // before every stretch, unless it starts with a space
  };
  SpaceMarker space_marker = SpaceMarker::kNormalizer;
  bool split_at_spaces = false;  // kSpmBpe, Metaspace: no token goes on over a space
  std::optional<bool>
      strip_leading_space;  // kSpmBpe: Decode drops one space at the start; default: add_prefix_space
};

class Tokenizer {
 public:
  // Checks the spec (ids in range, merges that exist, a regex that compiles and means in PCRE2 what it means
  // in HF's engine).
  static Result<std::unique_ptr<Tokenizer>> Create(TokenizerSpec spec);
  ~Tokenizer();

  // Every id is below it: the tokens, and added tokens beyond them.
  int64_t vocab_size() const;

  // Broken UTF-8 is read as U+FFFD, one per maximal ill-formed subpart. Added tokens in the text become their
  // ids. `add_special`: put prefix_ids first and suffix_ids last.
  std::vector<int32_t> Encode(std::string_view text, bool add_special) const;

  // The bytes of one token as the detokenizer would emit them in the middle of a text (not necessarily whole
  // UTF-8). Empty for an id that is no token.
  std::string TokenBytes(int32_t id) const;
  bool IsSpecial(int32_t id) const;

  // The text of `ids`, as HF's decode: broken UTF-8 becomes U+FFFD; ids that are no token are left out. In
  // the SentencePiece family a run of byte tokens that is not UTF-8 becomes one U+FFFD for each of its bytes.
  std::string Decode(std::span<const int32_t> ids, bool skip_special) const;

 private:
  friend class StreamingDetokenizer;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Turns ids into text as they arrive; never emits part of a UTF-8 character. The concatenation of every Push
// and the Flush is Decode of all ids. (In the SentencePiece family byte tokens are therefore held back until
// their run ends.) After Flush it can start on another text.
class StreamingDetokenizer {
 public:
  StreamingDetokenizer(const Tokenizer& tokenizer, bool skip_special);
  std::string Push(int32_t id);
  std::string Flush();

 private:
  std::string Started(std::string text);
  const Tokenizer& tokenizer_;
  bool skip_special_;
  bool at_start_ = true;
  std::string pending_;
};

}  // namespace plumbline

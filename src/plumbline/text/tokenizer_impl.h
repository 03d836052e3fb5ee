// What is behind Tokenizer.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plumbline/text/added_tokens.h"
#include "plumbline/text/bpe_model.h"
#include "plumbline/text/regex_splitter.h"
#include "plumbline/text/string_list.h"
#include "plumbline/text/tokenizer.h"

namespace plumbline {

struct Tokenizer::Impl {
  struct PieceKind {
    bool exists = false;
    bool is_byte = false;  // SentencePiece family: a byte token
    bool is_special = false;
    bool is_skipped = false;  // by skip_special
  };
  // What an id becomes in decoding.
  struct Piece {
    std::string_view bytes;
    PieceKind kind;
  };
  // Buffers of one Encode.
  struct Work {
    std::vector<RegexSplitter::Scratch> scratches;  // by splitter
    std::vector<std::string_view> pieces, next_pieces;
    std::vector<AddedTokenMatcher::Section> sections, inner_sections;
    std::vector<int32_t> symbols;
    std::string normalized, marked;
  };

  // The normaliser, as the text between added tokens and the content of normalised added tokens go through
  // it.
  bool HasNormalizer() const;
  std::string Normalize(std::string_view text) const;

  void EncodeText(std::string_view text, std::vector<int32_t>& ids) const;
  // Text without added tokens.
  void EncodeStretch(std::string_view text, bool at_start, Work& work, std::vector<int32_t>& ids) const;
  void EncodeByteLevel(std::string_view text, Work& work, std::vector<int32_t>& ids) const;
  void EncodeSpm(std::string_view text, bool at_start, Work& work, std::vector<int32_t>& ids) const;

  Status CheckSpec() const;
  Status CompileSplitters();
  void MakeMatchers();
  void MakePieces();
  // What a token spelled like this becomes.
  std::pair<std::string, PieceKind> MakePiece(std::string_view token) const;
  // Of an id that is no token one that does not exist.
  Piece PieceOf(int32_t id) const {
    const auto i = static_cast<size_t>(id);
    return id >= 0 && i < vocab_size ? Piece{piece_bytes[i], piece_kinds[i]} : Piece{};
  }
  bool IsSpm() const { return spec.model == TokenizerSpec::Model::kSpmBpe; }
  bool StripsLeadingSpace() const {
    return IsSpm() && spec.strip_leading_space.value_or(spec.add_prefix_space);
  }

  TokenizerSpec spec;
  size_t vocab_size = 0;
  std::unique_ptr<BpeModel> model;
  std::vector<RegexSplitter> splitters;      // byte-level: in turn
  AddedTokenMatcher raw_matcher{{}};         // on the text as it came
  AddedTokenMatcher normalized_matcher{{}};  // on what the normaliser makes of the rest
  StringList piece_bytes;                    // [vocab_size]
  std::vector<PieceKind> piece_kinds;        // [vocab_size]
};

}  // namespace plumbline

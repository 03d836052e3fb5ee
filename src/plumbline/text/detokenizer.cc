#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "plumbline/text/byte_alphabet.h"
#include "plumbline/text/space_mark.h"
#include "plumbline/text/tokenizer_impl.h"
#include "plumbline/text/utf8.h"

namespace plumbline {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The byte of "<0xNN>", or -1.
int ByteOfToken(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const int high = HexDigit(token[3]), low = HexDigit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

// A run of byte tokens is a text or, if it is not UTF-8, nothing but unknown bytes.
void AppendByteRun(std::string_view run, std::string& out) {
  if (IsValidUtf8(run)) {
    out += run;
  } else {
    for (size_t i = 0; i < run.size(); ++i) out += kReplacementUtf8;
  }
}

}  // namespace

std::pair<std::string, Tokenizer::Impl::PieceKind> Tokenizer::Impl::MakePiece(std::string_view token) const {
  if (!IsSpm()) return {BytesOfToken(token).value_or(std::string(token)), {.exists = true}};
  if (const int byte = ByteOfToken(token); byte >= 0) {
    return {std::string(1, static_cast<char>(byte)), {.exists = true, .is_byte = true}};
  }
  std::string text, bytes;
  AppendLossy(token, text);
  for (size_t pos = 0; pos < text.size();) {
    const size_t mark = std::min(text.find(kSpaceMarkUtf8, pos), text.size());
    bytes.append(text, pos, mark - pos);
    if (mark < text.size()) bytes += ' ';
    pos = mark + kSpaceMarkUtf8.size();
  }
  return {std::move(bytes), PieceKind{.exists = true}};
}

void Tokenizer::Impl::MakePieces() {
  // What is not spelled by the token itself.
  std::unordered_map<size_t, std::pair<std::string, PieceKind>> others;
  for (size_t b = 0; b < spec.byte_tokens.size(); ++b) {
    if (spec.byte_tokens[b] < 0) continue;
    others[static_cast<size_t>(spec.byte_tokens[b])] = {std::string(1, static_cast<char>(b)),
                                                        {.exists = true, .is_byte = true}};
  }
  std::unordered_set<std::string_view> special;
  for (const TokenizerSpec::AddedToken& token : spec.added_tokens) {
    if (token.special) special.insert(token.content);
  }
  for (const TokenizerSpec::AddedToken& token : spec.added_tokens) {
    // `tokenizers` decodes a normalised token as its normal form, and skips it if that is the name of a
    // special one.
    const bool normal_form = token.normalized && HasNormalizer() && IsValidUtf8(token.content);
    const std::string text = normal_form ? Normalize(token.content) : token.content;
    auto piece = MakePiece(text);
    piece.second.is_special = token.special;
    piece.second.is_skipped = special.contains(text);
    others[static_cast<size_t>(token.id)] = std::move(piece);
  }
  piece_kinds.reserve(vocab_size);
  for (size_t i = 0; i < vocab_size; ++i) {
    std::pair<std::string, PieceKind> piece;
    if (const auto other = others.find(i); other != others.end()) {
      piece = std::move(other->second);
    } else if (i < spec.tokens.size() && !spec.tokens[i].empty()) {
      piece = MakePiece(spec.tokens[i]);
    }
    piece_bytes.push_back(piece.first);
    piece_kinds.push_back(piece.second);
  }
  piece_bytes.shrink_to_fit();
}

std::string Tokenizer::TokenBytes(int32_t id) const { return std::string(impl_->PieceOf(id).bytes); }

bool Tokenizer::IsSpecial(int32_t id) const { return impl_->PieceOf(id).kind.is_special; }

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  StreamingDetokenizer stream(*this, skip_special);
  std::string text;
  for (const int32_t id : ids) text += stream.Push(id);
  return text += stream.Flush();
}

StreamingDetokenizer::StreamingDetokenizer(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(tokenizer), skip_special_(skip_special) {}

std::string StreamingDetokenizer::Push(int32_t id) {
  const Tokenizer::Impl::Piece piece = tokenizer_.impl_->PieceOf(id);
  if (!piece.kind.exists || (skip_special_ && piece.kind.is_skipped)) return {};
  std::string out;
  if (!tokenizer_.impl_->IsSpm()) {
    pending_ += piece.bytes;
    const size_t whole = pending_.size() - Utf8CutShortTail(pending_);
    AppendLossy(std::string_view(pending_).substr(0, whole), out);
    pending_.erase(0, whole);
    return out;
  }
  if (piece.kind.is_byte) {
    pending_ += piece.bytes;
    return out;
  }
  AppendByteRun(pending_, out);
  pending_.clear();
  out += piece.bytes;
  return Started(std::move(out));
}

std::string StreamingDetokenizer::Flush() {
  std::string out;
  if (tokenizer_.impl_->IsSpm()) {
    AppendByteRun(pending_, out);
    out = Started(std::move(out));
  } else {
    AppendLossy(pending_, out);
  }
  pending_.clear();
  at_start_ = true;
  return out;
}

std::string StreamingDetokenizer::Started(std::string text) {
  if (!at_start_ || text.empty()) return text;
  at_start_ = false;
  if (tokenizer_.impl_->StripsLeadingSpace() && text[0] == ' ') text.erase(0, 1);
  return text;
}

}  // namespace plumbline

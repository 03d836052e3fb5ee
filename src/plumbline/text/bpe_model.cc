#include "plumbline/text/bpe_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "plumbline/text/byte_alphabet.h"
#include "plumbline/text/space_mark.h"
#include "plumbline/text/utf8.h"

namespace plumbline {
namespace {

// A token is cut at each of its characters to find merges by score, and each half is looked up.
constexpr size_t kLongestScoredToken = 256;

}  // namespace

Result<std::unique_ptr<BpeModel>> BpeModel::Create(const TokenizerSpec& spec) {
  std::unique_ptr<BpeModel> model(new BpeModel(spec));
  RETURN_IF_ERROR(model->AddTokens());
  RETURN_IF_ERROR(model->AddByteTokens());
  const bool by_score =
      spec.model == TokenizerSpec::Model::kSpmBpe && spec.merges.empty() && !spec.scores.empty();
  RETURN_IF_ERROR(by_score ? model->AddMergesByScore() : model->AddMerges());
  model->FindWholeWords();
  return model;
}

Status BpeModel::AddTokens() {
  const bool byte_level = spec_.model == TokenizerSpec::Model::kByteLevelBpe;
  byte_ids_.fill(-1);
  ascii_ids_.fill(-1);
  for (size_t i = 0; i < spec_.tokens.size(); ++i) {
    const std::string& token = spec_.tokens[i];
    const auto id = static_cast<int32_t>(i);
    if (byte_level) {
      keys_.push_back(BytesOfToken(token).value_or(""));
    } else {
      keys_.push_back(IsValidUtf8(token) ? token : "");
    }
    const std::string_view key = keys_[i];
    if (key.empty()) continue;
    if (byte_level) {
      if (key.size() == 1) byte_ids_[static_cast<uint8_t>(key[0])] = id;
    } else if (const Utf8Char c = DecodeUtf8(key); c.bytes == key.size()) {
      if (c.code < ascii_ids_.size()) ascii_ids_[c.code] = id;
      character_ids_[c.code] = id;
    }
  }
  keys_.shrink_to_fit();
  vocab_ = StringTable(keys_);
  space_is_token_ = character_ids_.contains(kSpaceMark);
  return {};
}

Status BpeModel::AddByteTokens() {
  if (!spec_.byte_fallback) return {};
  if (spec_.model == TokenizerSpec::Model::kByteLevelBpe) {
    if (std::ranges::find(byte_ids_, -1) == byte_ids_.end()) return {};
    return InvalidInput(
        "tokenizer: got byte fallback and a byte-level model without some byte, want one or the other");
  }
  byte_tokens_ = spec_.byte_tokens;
  if (!byte_tokens_.empty()) return {};
  byte_tokens_.resize(256);
  for (int32_t b = 0; b < 256; ++b)
    byte_tokens_[static_cast<size_t>(b)] = vocab_.Find(fmt::format("<0x{:02X}>", b));
  return {};
}

Status BpeModel::AddMerges() {
  const bool byte_level = spec_.model == TokenizerSpec::Model::kByteLevelBpe;
  merges_ = MergeTable(spec_.merges.size());
  // Merges are spelled like tokens; in the byte-level family look them up as spelled, since that is what they
  // name.
  const StringTable spelled = byte_level ? StringTable(spec_.tokens) : StringTable();
  const StringTable& table = byte_level ? spelled : vocab_;
  std::string joined;
  for (size_t rank = 0; rank < spec_.merges.size(); ++rank) {
    const auto& [left, right] = spec_.merges[rank];
    joined.assign(left).append(right);
    const int32_t left_id = table.Find(left), right_id = table.Find(right), id = table.Find(joined);
    if (left.empty() || right.empty() || left_id < 0 || right_id < 0 || id < 0) {
      return InvalidInput("merge {}: got '{}' and '{}', want two tokens that join to a third", rank,
                          left.substr(0, 64), right.substr(0, 64));
    }
    merges_.Insert(left_id, right_id, {static_cast<uint32_t>(rank), id});
  }
  FindUncuttable();
  return {};
}

Status BpeModel::AddMergesByScore() {
  if (spec_.scores.size() != spec_.tokens.size()) {
    return InvalidInput("tokenizer scores: got {}, want one for each of {} tokens", spec_.scores.size(),
                        spec_.tokens.size());
  }
  if (std::ranges::any_of(spec_.scores, [](float score) { return std::isnan(score); })) {
    return InvalidInput("tokenizer scores: got NaN, want numbers");
  }
  std::vector<bool> mergeable(spec_.tokens.size(), true);
  for (const TokenizerSpec::AddedToken& token : spec_.added_tokens) {
    if (static_cast<size_t>(token.id) < mergeable.size()) mergeable[static_cast<size_t>(token.id)] = false;
  }
  for (const int32_t id : byte_tokens_) {
    if (id >= 0) mergeable[static_cast<size_t>(id)] = false;
  }
  // Equal scores are equal ranks: then the leftmost pair is first.
  std::vector<int32_t> order(spec_.tokens.size());
  std::iota(order.begin(), order.end(), 0);
  const auto score = [&](int32_t id) { return spec_.scores[static_cast<size_t>(id)]; };
  std::ranges::sort(order, [&](int32_t a, int32_t b) { return score(a) > score(b); });
  uint32_t rank = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const int32_t id = order[i];
    if (i > 0 && score(order[i - 1]) != score(id)) ++rank;
    const std::string_view key = keys_[static_cast<size_t>(id)];
    if (!mergeable[static_cast<size_t>(id)] || key.empty() || vocab_.Find(key) != id) continue;
    if (key.size() > kLongestScoredToken) {
      return InvalidInput("token {}: got {} bytes, want at most {} where merges follow from scores", id,
                          key.size(), kLongestScoredToken);
    }
    size_t cut = 0;
    for (NextCodePoint(key, cut); cut < key.size(); NextCodePoint(key, cut)) {
      const int32_t left = vocab_.Find(key.substr(0, cut)), right = vocab_.Find(key.substr(cut));
      if (left < 0 || right < 0 || !mergeable[static_cast<size_t>(left)] ||
          !mergeable[static_cast<size_t>(right)]) {
        continue;
      }
      merges_.Insert(left, right, {rank, id});
    }
  }
  FindUncuttable();
  return {};
}

void BpeModel::FindWholeWords() {
  whole_.assign(keys_.size(), false);
  std::vector<int32_t> symbols;
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (keys_[i].empty()) continue;
    Symbols(keys_[i], symbols);
    MergeSymbols(merges_, symbols);
    whole_[i] = symbols.size() == 1 && symbols[0] == static_cast<int32_t>(i);
  }
}

void BpeModel::FindUncuttable() {
  if (spec_.model != TokenizerSpec::Model::kSpmBpe) return;
  std::unordered_set<int32_t> nameless(byte_tokens_.begin(), byte_tokens_.end());
  if (spec_.unk_id) nameless.insert(*spec_.unk_id);
  merges_.ForEach([&](int32_t left, int32_t right) {
    if (!keys_[static_cast<size_t>(right)].starts_with(kSpaceMarkUtf8)) return;
    // Such a token stands for any character, so nothing is known about what is before the space.
    if (nameless.contains(left)) space_is_token_ = false;
    uncuttable_.insert(LastCharacter(keys_[static_cast<size_t>(left)]));
  });
}

bool BpeModel::CutsBeforeSpace(char32_t before) const {
  if (!space_is_token_ || spec_.ignore_merges) return false;
  return character_ids_.contains(before) && !uncuttable_.contains(before);
}

void BpeModel::ByteSymbols(std::string_view word, std::vector<int32_t>& symbols) const {
  bool unknown = false;  // an unknown is pending
  for (const char c : word) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    if (unknown && (id >= 0 || !spec_.fuse_unk)) {
      symbols.push_back(*spec_.unk_id);
      unknown = false;
    }
    if (id >= 0) symbols.push_back(id);
    if (id < 0 && spec_.unk_id) unknown = true;
  }
  if (unknown) symbols.push_back(*spec_.unk_id);
}

bool BpeModel::AppendByteTokens(std::string_view character, std::vector<int32_t>& symbols) const {
  if (byte_tokens_.empty()) return false;
  for (const char c : character) {
    if (byte_tokens_[static_cast<uint8_t>(c)] < 0) return false;
  }
  for (const char c : character) symbols.push_back(byte_tokens_[static_cast<uint8_t>(c)]);
  return true;
}

void BpeModel::CharacterSymbols(std::string_view word, std::vector<int32_t>& symbols) const {
  bool unknown = false;
  for (size_t pos = 0; pos < word.size();) {
    const size_t begin = pos;
    const char32_t c = NextCodePoint(word, pos);
    int32_t id = -1;
    if (c < ascii_ids_.size()) {
      id = ascii_ids_[c];
    } else if (const auto it = character_ids_.find(c); it != character_ids_.end()) {
      id = it->second;
    }
    // Bytes go before an unknown that is pending, as they do in `tokenizers`.
    if (id < 0 && AppendByteTokens(word.substr(begin, pos - begin), symbols)) continue;
    if (unknown && (id >= 0 || !spec_.fuse_unk)) {
      symbols.push_back(*spec_.unk_id);
      unknown = false;
    }
    if (id >= 0) symbols.push_back(id);
    if (id < 0 && spec_.unk_id) unknown = true;
  }
  if (unknown) symbols.push_back(*spec_.unk_id);
}

void BpeModel::Symbols(std::string_view word, std::vector<int32_t>& symbols) const {
  symbols.clear();
  if (spec_.model == TokenizerSpec::Model::kByteLevelBpe) {
    ByteSymbols(word, symbols);
  } else {
    CharacterSymbols(word, symbols);
  }
}

void BpeModel::EncodeWord(std::string_view word, std::vector<int32_t>& symbols,
                          std::vector<int32_t>& ids) const {
  const int32_t id = vocab_.Find(word);
  if (id >= 0 && (spec_.ignore_merges || whole_[static_cast<size_t>(id)])) {
    ids.push_back(id);
    return;
  }
  Symbols(word, symbols);
  MergeSymbols(merges_, symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

}  // namespace plumbline

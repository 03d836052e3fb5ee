#include "plumbline/text/tokenizer.h"

#include <algorithm>
#include <unordered_set>

#include "plumbline/text/nfc.h"
#include "plumbline/text/pretokenizer_patterns.h"
#include "plumbline/text/space_mark.h"
#include "plumbline/text/tokenizer_impl.h"
#include "plumbline/text/utf8.h"

namespace plumbline {
namespace {

using Spec = TokenizerSpec;

// Added tokens are looked for at every place they may start.
constexpr size_t kLongestAddedToken = 1024;
// An added token beyond the tokens makes room for every id below it.
constexpr size_t kMaxVocab = size_t{1} << 24;
// Of all tokens together, far above any vocabulary. What they become in decoding is up to three times as
// long, and fits a StringList.
constexpr size_t kMaxText = size_t{1} << 30;

Status CheckId(const char* what, int64_t id, size_t vocab_size) {
  if (id >= 0 && static_cast<size_t>(id) < vocab_size) return {};
  return InvalidInput("{}: got {}, want a token id below {}", what, id, vocab_size);
}

std::vector<std::string_view> Patterns(const Spec& spec) {
  switch (spec.pre_tokenizer) {
    case Spec::PreTokenizer::kNone:
      return {};
    case Spec::PreTokenizer::kGpt2:
      return {kGpt2Pattern};
    case Spec::PreTokenizer::kLlama3:
      return {kLlama3Pattern};
    case Spec::PreTokenizer::kQwen2:
      return {kQwen2Pattern};
    case Spec::PreTokenizer::kSmolLm:
      return {kDigitPattern, kGpt2Pattern};
    case Spec::PreTokenizer::kCustomRegex:
      break;
  }
  std::vector<std::string_view> patterns = {spec.custom_regex};
  patterns.insert(patterns.end(), spec.more_regexes.begin(), spec.more_regexes.end());
  return patterns;
}

}  // namespace

Status Tokenizer::Impl::CheckSpec() const {
  if (spec.tokens.empty() || vocab_size > kMaxVocab) {
    return InvalidInput("tokenizer vocabulary: got {} tokens, want 1 to {}", vocab_size, kMaxVocab);
  }
  size_t bytes = 0;
  for (const std::string& token : spec.tokens) bytes += token.size();
  for (const Spec::AddedToken& token : spec.added_tokens) bytes += token.content.size();
  if (bytes > kMaxText)
    return InvalidInput("tokenizer vocabulary: got {} bytes, want at most {}", bytes, kMaxText);
  for (const Spec::AddedToken& token : spec.added_tokens) {
    RETURN_IF_ERROR(CheckId("added token", token.id, kMaxVocab));
    if (token.content.size() > kLongestAddedToken) {
      return InvalidInput("added token {}: got {} bytes, want at most {}", token.id, token.content.size(),
                          kLongestAddedToken);
    }
  }
  // BPE itself gives only the ids of tokens, so what it may give must be one of them.
  if (spec.unk_id) RETURN_IF_ERROR(CheckId("unknown token", *spec.unk_id, spec.tokens.size()));
  for (const int32_t id : spec.byte_tokens) {
    if (id != -1) RETURN_IF_ERROR(CheckId("byte token", id, spec.tokens.size()));
  }
  if (!spec.byte_tokens.empty() && spec.byte_tokens.size() != 256) {
    return InvalidInput("byte tokens: got {}, want 256 or none", spec.byte_tokens.size());
  }
  for (const int32_t id : spec.prefix_ids) RETURN_IF_ERROR(CheckId("first token of a text", id, vocab_size));
  for (const int32_t id : spec.suffix_ids) RETURN_IF_ERROR(CheckId("last token of a text", id, vocab_size));
  if (IsSpm() && spec.nfc) return InvalidInput("tokenizer: got NFC in the SentencePiece family, want none");
  const bool one_stage =
      spec.pre_tokenizer == Spec::PreTokenizer::kNone || spec.pre_tokenizer == Spec::PreTokenizer::kGpt2;
  if (!IsSpm() && spec.add_prefix_space && !one_stage) {
    return InvalidInput(
        "tokenizer: got a prefix space and a splitting rule of its own, want one or the other");
  }
  return {};
}

Status Tokenizer::Impl::CompileSplitters() {
  if (IsSpm()) return {};
  for (const std::string_view pattern : Patterns(spec)) {
    ASSIGN_OR_RETURN(RegexSplitter splitter, RegexSplitter::Compile(pattern));
    splitters.push_back(std::move(splitter));
  }
  return {};
}

bool Tokenizer::Impl::HasNormalizer() const {
  return IsSpm() ? spec.space_marker == Spec::SpaceMarker::kNormalizer : spec.nfc;
}

std::string Tokenizer::Impl::Normalize(std::string_view text) const {
  if (!IsSpm()) return NormalizeNfc(text);
  std::string out;
  if (text.empty()) return out;
  if (spec.add_prefix_space) out += kSpaceMarkUtf8;
  AppendMarkingSpaces(text, out);
  return out;
}

void Tokenizer::Impl::MakeMatchers() {
  std::vector<AddedTokenMatcher::Pattern> raw, normalized;
  std::vector<std::string> contents(spec.added_tokens.size());
  for (size_t i = 0; i < contents.size(); ++i) {
    const Spec::AddedToken& token = spec.added_tokens[i];
    AppendLossy(token.content, contents[i]);
    if (token.normalized && HasNormalizer()) contents[i] = Normalize(contents[i]);
    if (contents[i].empty()) continue;
    (token.normalized ? normalized : raw)
        .push_back({contents[i], token.id, token.lstrip, token.rstrip, token.single_word});
  }
  raw_matcher = AddedTokenMatcher(raw);
  normalized_matcher = AddedTokenMatcher(normalized);
}

void Tokenizer::Impl::EncodeByteLevel(std::string_view text, Work& work, std::vector<int32_t>& ids) const {
  if (spec.add_prefix_space && !text.starts_with(' ')) {
    work.marked.assign(1, ' ');
    work.marked.append(text);
    text = work.marked;
  }
  work.pieces.assign(1, text);
  for (size_t i = 0; i < splitters.size(); ++i) {
    if (work.scratches.size() == i) work.scratches.emplace_back(splitters[i]);
    work.next_pieces.clear();
    for (const std::string_view piece : work.pieces)
      splitters[i].Split(piece, work.scratches[i], work.next_pieces);
    work.pieces.swap(work.next_pieces);
  }
  for (const std::string_view piece : work.pieces) model->EncodeWord(piece, work.symbols, ids);
}

void Tokenizer::Impl::EncodeSpm(std::string_view text, bool at_start, Work& work,
                                std::vector<int32_t>& ids) const {
  if (spec.space_marker != Spec::SpaceMarker::kNormalizer) {
    work.marked.clear();
    const bool here = spec.space_marker == Spec::SpaceMarker::kMetaspaceAlways || at_start;
    const bool starts_with_space = text.starts_with(' ') || text.starts_with(kSpaceMarkUtf8);
    if (spec.add_prefix_space && here && !starts_with_space) work.marked += kSpaceMarkUtf8;
    AppendMarkingSpaces(text, work.marked);
    text = work.marked;
  }
  // Words that no token can cross are encoded one by one: they are short, and most are a token as they are.
  size_t begin = 0;
  for (size_t pos = text.find(kSpaceMarkUtf8, 1); pos != std::string_view::npos;
       pos = text.find(kSpaceMarkUtf8, pos + 1)) {
    if (!spec.split_at_spaces && !model->CutsBeforeSpace(LastCharacter(text.substr(0, pos)))) continue;
    model->EncodeWord(text.substr(begin, pos - begin), work.symbols, ids);
    begin = pos;
  }
  model->EncodeWord(text.substr(begin), work.symbols, ids);
}

void Tokenizer::Impl::EncodeStretch(std::string_view text, bool at_start, Work& work,
                                    std::vector<int32_t>& ids) const {
  if (text.empty()) return;
  if (IsSpm()) {
    EncodeSpm(text, at_start, work, ids);
  } else {
    EncodeByteLevel(text, work, ids);
  }
}

void Tokenizer::Impl::EncodeText(std::string_view text, std::vector<int32_t>& ids) const {
  Work work;
  raw_matcher.Split(text, work.sections);
  for (const AddedTokenMatcher::Section& section : work.sections) {
    if (section.id >= 0) {
      ids.push_back(section.id);
      continue;
    }
    std::string_view stretch = text.substr(section.begin, section.end - section.begin);
    if (HasNormalizer()) {
      work.normalized = Normalize(stretch);
      stretch = work.normalized;
    }
    work.inner_sections.clear();
    normalized_matcher.Split(stretch, work.inner_sections);
    for (const AddedTokenMatcher::Section& inner : work.inner_sections) {
      if (inner.id >= 0) {
        ids.push_back(inner.id);
      } else {
        const bool at_start = section.begin == 0 && inner.begin == 0;
        EncodeStretch(stretch.substr(inner.begin, inner.end - inner.begin), at_start, work, ids);
      }
    }
  }
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::Create(TokenizerSpec spec) {
  auto impl = std::make_unique<Impl>();
  impl->spec = std::move(spec);
  impl->vocab_size = impl->spec.tokens.size();
  for (const Spec::AddedToken& token : impl->spec.added_tokens) {
    if (token.id >= 0) impl->vocab_size = std::max(impl->vocab_size, static_cast<size_t>(token.id) + 1);
  }
  RETURN_IF_ERROR(impl->CheckSpec());
  RETURN_IF_ERROR(impl->CompileSplitters());
  ASSIGN_OR_RETURN(impl->model, BpeModel::Create(impl->spec));
  impl->MakeMatchers();
  impl->MakePieces();
  // The model and the pieces have what they need of the vocabulary; a second copy of it is tens of megabytes.
  // (Of `= {}` a vector would keep its memory.)
  impl->spec.tokens = decltype(Spec::tokens)();
  impl->spec.merges = decltype(Spec::merges)();
  impl->spec.scores = decltype(Spec::scores)();
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(impl)));
}

int64_t Tokenizer::vocab_size() const { return static_cast<int64_t>(impl_->vocab_size); }

std::vector<int32_t> Tokenizer::Encode(std::string_view text, bool add_special) const {
  std::vector<int32_t> ids;
  if (add_special) ids = impl_->spec.prefix_ids;
  if (IsValidUtf8(text)) {
    impl_->EncodeText(text, ids);
  } else {
    std::string whole;
    AppendLossy(text, whole);
    impl_->EncodeText(whole, ids);
  }
  if (add_special) ids.insert(ids.end(), impl_->spec.suffix_ids.begin(), impl_->spec.suffix_ids.end());
  return ids;
}

}  // namespace plumbline

#include "plumbline/text/added_tokens.h"

#include <algorithm>

#include "plumbline/text/utf8.h"
#include "plumbline/text/word_character.h"

namespace plumbline {
namespace {

bool TouchesWord(std::string_view before, std::string_view after) {
  size_t pos = 0;
  return (!before.empty() && IsWordCharacter(LastCharacter(before))) ||
         (!after.empty() && IsWordCharacter(NextCodePoint(after, pos)));
}

size_t SpacesAtEnd(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    size_t pos = begin;
    if (!IsWhiteSpace(NextCodePoint(text, pos))) break;
    end = begin;
  }
  return text.size() - end;
}

size_t SpacesAtStart(std::string_view text) {
  size_t end = 0;
  for (size_t pos = 0; pos < text.size() && IsWhiteSpace(NextCodePoint(text, pos)); end = pos) {
  }
  return end;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(const std::vector<Pattern>& patterns) {
  nodes_.emplace_back();
  for (const Pattern& pattern : patterns) {
    uint32_t node = 0;
    for (const char c : pattern.content) {
      const uint64_t key = uint64_t{node} << 8 | static_cast<uint8_t>(c);
      const auto [edge, added] = edges_.try_emplace(key, static_cast<uint32_t>(nodes_.size()));
      if (added) nodes_.emplace_back();
      node = edge->second;
    }
    if (node == 0 || nodes_[node].pattern >= 0) continue;
    nodes_[node].pattern = static_cast<int32_t>(flags_.size());
    flags_.push_back({pattern.id, pattern.lstrip, pattern.rstrip, pattern.single_word});
    starts_[static_cast<uint8_t>(pattern.content[0])] = true;
  }
}

AddedTokenMatcher::Match AddedTokenMatcher::LongestAt(std::string_view text, size_t begin) const {
  Match match;
  uint32_t node = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    const auto edge = edges_.find(uint64_t{node} << 8 | static_cast<uint8_t>(text[i]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (nodes_[node].pattern >= 0) match = {i + 1, nodes_[node].pattern};
  }
  return match;
}

void AddedTokenMatcher::Split(std::string_view text, std::vector<Section>& sections) const {
  size_t done = 0;  // sections so far end here
  for (size_t pos = 0; pos < text.size();) {
    if (!starts_[static_cast<uint8_t>(text[pos])]) {
      ++pos;
      continue;
    }
    const Match match = LongestAt(text, pos);
    if (match.pattern < 0) {
      ++pos;
      continue;
    }
    size_t begin = pos, end = match.end;
    pos = match.end;
    const Flags& flags = flags_[static_cast<size_t>(match.pattern)];
    if (flags.single_word && TouchesWord(text.substr(0, begin), text.substr(end))) continue;
    if (flags.lstrip) begin = std::max(begin - SpacesAtEnd(text.substr(0, begin)), done);
    if (flags.rstrip) end += SpacesAtStart(text.substr(end));
    if (done < begin) sections.push_back({done, begin, -1});
    sections.push_back({begin, end, flags.id});
    done = end;
  }
  if (done < text.size()) sections.push_back({done, text.size(), -1});
}

}  // namespace plumbline

#include "plumbline/text/nfc.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "plumbline/text/unicode_tables.h"
#include "plumbline/text/utf8.h"

namespace plumbline {
namespace {

constexpr char32_t kHangulSyllables = 0xAC00, kHangulL = 0x1100, kHangulV = 0x1161, kHangulT = 0x11A7;
constexpr char32_t kHangulLCount = 19, kHangulVCount = 21, kHangulTCount = 28;
constexpr char32_t kHangulCount = kHangulLCount * kHangulVCount * kHangulTCount;
// Below this, every character is its own NFC and combines with nothing before it.
constexpr char32_t kFirstCombining = 0x300;

class NfcData {
 public:
  static const NfcData& Get() {
    static const NfcData data;
    return data;
  }

  uint32_t CombiningClass(char32_t c) const {
    const auto it = classes_.find(c);
    return it == classes_.end() ? 0 : it->second;
  }

  // Appends the full canonical decomposition of `c`. The recursion is as deep as the data: three levels.
  void Decompose(char32_t c, std::vector<char32_t>& out) const {
    if (c >= kHangulSyllables && c < kHangulSyllables + kHangulCount) {
      const char32_t s = c - kHangulSyllables;
      out.push_back(kHangulL + s / (kHangulVCount * kHangulTCount));
      out.push_back(kHangulV + s / kHangulTCount % kHangulVCount);
      if (s % kHangulTCount != 0) out.push_back(kHangulT + s % kHangulTCount);
      return;
    }
    const auto it = decompositions_.find(c);
    if (it == decompositions_.end()) {
      out.push_back(c);
      return;
    }
    Decompose(it->second.first, out);
    if (it->second.second != 0) Decompose(it->second.second, out);
  }

  // The primary composite of the two, or 0.
  char32_t Compose(char32_t a, char32_t b) const {
    if (a >= kHangulL && a < kHangulL + kHangulLCount && b >= kHangulV && b < kHangulV + kHangulVCount) {
      return kHangulSyllables + ((a - kHangulL) * kHangulVCount + (b - kHangulV)) * kHangulTCount;
    }
    if (a >= kHangulSyllables && a < kHangulSyllables + kHangulCount &&
        (a - kHangulSyllables) % kHangulTCount == 0 && b > kHangulT && b < kHangulT + kHangulTCount) {
      return a + (b - kHangulT);
    }
    const auto it = composites_.find(uint64_t{a} << 32 | b);
    return it == composites_.end() ? 0 : it->second;
  }

  // Whether `c` is a starter that no earlier character can change or absorb.
  bool StartsSegment(char32_t c) const { return c < kFirstCombining || !joins_.contains(c); }
  bool Decomposes(char32_t c) const { return c >= 0xC0 && decompositions_.contains(c); }

 private:
  NfcData() {
    const std::unordered_set<char32_t> never(unicode::NeverComposed().begin(),
                                             unicode::NeverComposed().end());
    const std::span<const char32_t> pairs = unicode::DecompositionPairs();
    for (size_t i = 0; i < pairs.size(); i += 3) {
      decompositions_[pairs[i]] = {pairs[i + 1], pairs[i + 2]};
      joins_.insert(pairs[i + 2]);
      if (!never.contains(pairs[i])) composites_[uint64_t{pairs[i + 1]} << 32 | pairs[i + 2]] = pairs[i];
    }
    const std::span<const char32_t> singles = unicode::DecompositionSingles();
    for (size_t i = 0; i < singles.size(); i += 2) decompositions_[singles[i]] = {singles[i + 1], 0};
    const std::span<const char32_t> classes = unicode::CombiningClasses();
    for (size_t i = 0; i < classes.size(); i += 3) {
      for (char32_t c = classes[i]; c <= classes[i + 1]; ++c) {
        classes_[c] = classes[i + 2];
        joins_.insert(c);
      }
    }
    for (char32_t c = kHangulV; c < kHangulT + kHangulTCount; ++c) joins_.insert(c);
    // A character whose decomposition starts with one that joins, joins.
    for (const auto& [c, parts] : decompositions_) {
      std::vector<char32_t> full;
      Decompose(c, full);
      if (joins_.contains(full[0])) joins_.insert(c);
    }
  }

  std::unordered_map<char32_t, std::pair<char32_t, char32_t>> decompositions_;
  std::unordered_map<uint64_t, char32_t> composites_;
  std::unordered_map<char32_t, uint32_t> classes_;
  std::unordered_set<char32_t> joins_;
};

// Puts each run of marks in the order of their combining classes, those of one class as they are.
void SortMarks(std::vector<char32_t>& text) {
  const NfcData& data = NfcData::Get();
  std::vector<std::pair<uint32_t, size_t>> run;  // class, place
  std::vector<char32_t> sorted;
  for (size_t begin = 0; begin < text.size();) {
    run.clear();
    for (size_t i = begin; i < text.size(); ++i) {
      const uint32_t cc = data.CombiningClass(text[i]);
      if (cc == 0) break;
      run.emplace_back(cc, i);
    }
    std::ranges::sort(run);
    sorted.clear();
    for (const auto& [cc, place] : run) sorted.push_back(text[place]);
    std::ranges::copy(sorted, text.begin() + static_cast<std::ptrdiff_t>(begin));
    begin += run.size() + 1;
  }
}

// Normalises one segment, given by its code points, in place.
void ComposeSegment(std::vector<char32_t>& segment, std::vector<char32_t>& scratch) {
  const NfcData& data = NfcData::Get();
  scratch.clear();
  for (const char32_t c : segment) data.Decompose(c, scratch);
  SortMarks(scratch);
  segment.clear();
  size_t starter = 0;
  bool has_starter = false;
  uint32_t last_class = 0;  // of the last character kept after the starter
  for (const char32_t c : scratch) {
    const uint32_t cc = data.CombiningClass(c);
    if (has_starter) {
      const bool adjacent = starter + 1 == segment.size();
      const char32_t composite = adjacent || last_class < cc ? data.Compose(segment[starter], c) : 0;
      if (composite != 0) {
        segment[starter] = composite;
        continue;
      }
    }
    if (cc == 0) {
      starter = segment.size();
      has_starter = true;
    }
    last_class = cc;
    segment.push_back(c);
  }
}

}  // namespace

std::string NormalizeNfc(std::string_view text) {
  // U+0300 is CC 80.
  if (std::ranges::all_of(text, [](char c) { return static_cast<uint8_t>(c) < 0xCC; }))
    return std::string(text);
  const NfcData& data = NfcData::Get();
  std::string out;
  out.reserve(text.size());
  std::vector<char32_t> segment, scratch;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t first = NextCodePoint(text, pos);
    size_t count = 1;
    size_t next = pos;
    while (pos < text.size()) {
      next = pos;
      if (data.StartsSegment(NextCodePoint(text, next))) break;
      pos = next;
      ++count;
    }
    if (count == 1 && !data.Decomposes(first)) {
      out.append(text.substr(begin, pos - begin));
      continue;
    }
    segment.clear();
    for (size_t p = begin; p < pos;) segment.push_back(NextCodePoint(text, p));
    ComposeSegment(segment, scratch);
    for (const char32_t c : segment) AppendUtf8(c, out);
  }
  return out;
}

}  // namespace plumbline

// Finding added tokens in text: leftmost match, of those the longest; then the rules of single_word, lstrip,
// rstrip.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace plumbline {

class AddedTokenMatcher {
 public:
  struct Pattern {
    std::string_view content;  // copied; must not be empty
    int32_t id = 0;
    bool lstrip = false, rstrip = false, single_word = false;
  };
  // A stretch of text: an added token (with the spaces it took along), or what lies between two.
  struct Section {
    size_t begin = 0, end = 0;
    int32_t id = -1;  // -1: between
  };

  // Of patterns with the same content the first counts.
  explicit AddedTokenMatcher(const std::vector<Pattern>& patterns);

  bool empty() const { return flags_.empty(); }

  // Appends the sections of `text`, well-formed UTF-8, in order. Together they are the text, with one
  // exception that `tokenizers` makes: a token of spaces which the token before took along by rstrip is still
  // found.
  void Split(std::string_view text, std::vector<Section>& sections) const;

 private:
  struct Node {
    int32_t pattern = -1;  // that ends here
  };
  struct Flags {
    int32_t id = 0;
    bool lstrip = false, rstrip = false, single_word = false;
  };
  struct Match {
    size_t end = 0;
    int32_t pattern = -1;
  };
  Match LongestAt(std::string_view text, size_t begin) const;

  std::array<bool, 256> starts_{};                // bytes some pattern starts with
  std::vector<Node> nodes_;                       // of a trie; 0 is the root
  std::unordered_map<uint64_t, uint32_t> edges_;  // node << 8 | byte -> node
  std::vector<Flags> flags_;                      // by pattern
};

}  // namespace plumbline

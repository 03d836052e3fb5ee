// Full pages of finished and running sequences, found again by the tokens they hold: a tree in which a page
// hangs below the page before it and is looked up by its page_size tokens, all compared. A path from the root
// is a prefix.
//
// Pages that a sequence refers to stay; the others are idle, kept until memory is needed, and given up least
// recently used first, ends of prefixes before their beginnings. One thread at a time.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace plumbline {

// What scoring a page's own tokens gave: entry i is of the page's token i, given everything before it. Entry
// 0 of a first page is meaningless.
struct PageResults {
  std::vector<float> logprobs;                 // [page_size]
  std::vector<int64_t> ranks;                  // [page_size]
  std::vector<std::pair<int32_t, float>> top;  // [page_size, top_k]
  int32_t top_k = 0;
};

struct TokensLess {
  using is_transparent = void;
  bool operator()(std::span<const int32_t> a, std::span<const int32_t> b) const;
};

struct PrefixNode {
  using Children = std::map<std::vector<int32_t>, std::unique_ptr<PrefixNode>, TokensLess>;

  PrefixNode* parent = nullptr;  // null: the first page of a prefix
  uint32_t page = 0;
  std::optional<PageResults> results;
  Children children;
  Children::iterator place;               // among its parent's children
  int64_t users = 0;                      // sequences that refer to it
  std::list<PrefixNode*>::iterator idle;  // valid while there are none
};

class PrefixCache {
 public:
  // The page that holds `tokens` behind the prefix that ends with `parent` (null: at the beginning), or null.
  // The caller becomes a user of it.
  PrefixNode* Use(PrefixNode* parent, std::span<const int32_t> tokens);

  // Takes the ownership of `page`; no page with these tokens is there yet. The caller becomes a user of it.
  PrefixNode* Insert(PrefixNode* parent, std::span<const int32_t> tokens, uint32_t page);

  // One user less of each of a prefix's pages, in order from the first; empties `prefix`.
  void Release(std::vector<PrefixNode*>& prefix);
  void Release(PrefixNode* node);

  int64_t idle_pages() const { return static_cast<int64_t>(idle_.size()); }
  // Forgets the idle page that was used longest ago and returns it; 0 where none is idle.
  uint32_t Evict();

 private:
  PrefixNode::Children& ChildrenOf(PrefixNode* parent) {
    return parent == nullptr ? first_ : parent->children;
  }

  PrefixNode::Children first_;
  std::list<PrefixNode*> idle_;  // longest ago first
};

}  // namespace plumbline

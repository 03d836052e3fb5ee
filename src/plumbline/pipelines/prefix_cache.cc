#include "plumbline/pipelines/prefix_cache.h"

#include <algorithm>

#include "plumbline/base/check.h"

namespace plumbline {

bool TokensLess::operator()(std::span<const int32_t> a, std::span<const int32_t> b) const {
  return std::ranges::lexicographical_compare(a, b);
}

PrefixNode* PrefixCache::Use(PrefixNode* parent, std::span<const int32_t> tokens) {
  PrefixNode::Children& children = ChildrenOf(parent);
  const auto found = children.find(tokens);
  if (found == children.end()) return nullptr;
  PrefixNode* node = found->second.get();
  if (node->users++ == 0) idle_.erase(node->idle);
  return node;
}

PrefixNode* PrefixCache::Insert(PrefixNode* parent, std::span<const int32_t> tokens, uint32_t page) {
  auto node = std::make_unique<PrefixNode>();
  node->parent = parent;
  node->page = page;
  node->users = 1;
  const auto [place, inserted] =
      ChildrenOf(parent).emplace(std::vector(tokens.begin(), tokens.end()), nullptr);
  PLUMBLINE_CHECK(inserted);
  node->place = place;
  place->second = std::move(node);
  return place->second.get();
}

void PrefixCache::Release(PrefixNode* node) {
  PLUMBLINE_CHECK(node->users > 0);
  if (--node->users == 0) node->idle = idle_.insert(idle_.end(), node);
}

void PrefixCache::Release(std::vector<PrefixNode*>& prefix) {
  // The last page first: so a page always lies before its parent in idle_, and the front has no children.
  for (auto node = prefix.rbegin(); node != prefix.rend(); ++node) Release(*node);
  prefix.clear();
}

uint32_t PrefixCache::Evict() {
  if (idle_.empty()) return 0;
  PrefixNode* node = idle_.front();
  PLUMBLINE_CHECK(node->children.empty());
  idle_.pop_front();
  const uint32_t page = node->page;
  ChildrenOf(node->parent).erase(node->place);
  return page;
}

}  // namespace plumbline

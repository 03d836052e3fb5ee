// An ordered tree of named leaves, held as the list of its leaves from left to right, each with its path
// ("replica0/cache_lengths"). Flattening is reading the list; two trees have the same structure when their
// paths are equal.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plumbline/base/status.h"

namespace plumbline {

template <typename T>
struct InputTree {
  struct Leaf {
    std::string path;
    T value{};
    friend bool operator==(const Leaf&, const Leaf&) = default;
  };
  std::vector<Leaf> leaves;

  void Add(std::string path, T value) { leaves.push_back({std::move(path), std::move(value)}); }

  // The leaf at `path`, or null.
  const T* Find(std::string_view path) const {
    for (const Leaf& leaf : leaves) {
      if (leaf.path == path) return &leaf.value;
    }
    return nullptr;
  }
  T* Find(std::string_view path) { return const_cast<T*>(std::as_const(*this).Find(path)); }

  // The same structure, other leaves.
  template <typename U>
  InputTree<U> Like() const {
    InputTree<U> tree;
    for (const Leaf& leaf : leaves) tree.leaves.push_back({leaf.path, U{}});
    return tree;
  }
  friend bool operator==(const InputTree&, const InputTree&) = default;
};

// Refuses what is not a tree: an empty name, a path given twice, a leaf that has leaves below it, and leaves
// of one subtree with others between them. `where` names the tree.
Status CheckPaths(std::span<const std::string_view> paths, std::string_view where);

template <typename T>
Status CheckTree(const InputTree<T>& tree, std::string_view where) {
  std::vector<std::string_view> paths;
  for (const auto& leaf : tree.leaves) paths.push_back(leaf.path);
  return CheckPaths(paths, where);
}

}  // namespace plumbline

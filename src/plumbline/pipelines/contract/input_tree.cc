#include "plumbline/pipelines/contract/input_tree.h"

#include <algorithm>
#include <set>

namespace plumbline {

Status CheckPaths(std::span<const std::string_view> paths, std::string_view where) {
  std::set<std::string_view> leaves, closed;
  std::vector<std::string_view> open;  // the subtrees around the last leaf, outermost first
  for (std::string_view path : paths) {
    if (path.empty() || path.front() == '/' || path.back() == '/' || path.find("//") != path.npos) {
      return InvalidInput("input tree: got path \"{}\", want names joined by / ({})", path, where);
    }
    if (!leaves.insert(path).second) {
      return InvalidInput("input tree: got leaf {} twice, want each once ({})", path, where);
    }
    std::vector<std::string_view> around;
    for (size_t slash = path.find('/'); slash != path.npos; slash = path.find('/', slash + 1)) {
      around.push_back(path.substr(0, slash));
    }
    size_t common = 0;
    while (common < open.size() && common < around.size() && open[common] == around[common]) ++common;
    closed.insert(open.begin() + static_cast<std::ptrdiff_t>(common), open.end());
    for (size_t i = common; i < around.size(); ++i) {
      if (closed.contains(around[i])) {
        return InvalidInput("input tree: got leaf {} apart from the others of {}, want them together ({})",
                            path, around[i], where);
      }
    }
    open = std::move(around);
  }
  for (std::string_view leaf : leaves) {
    if (closed.contains(leaf) || std::find(open.begin(), open.end(), leaf) != open.end()) {
      return InvalidInput("input tree: got leaf {} with leaves below it, want a leaf or a subtree ({})", leaf,
                          where);
    }
  }
  return {};
}

}  // namespace plumbline

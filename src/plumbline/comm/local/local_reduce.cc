// Sums and maxima of a local group.
#include <algorithm>

#include "plumbline/base/float_env.h"
#include "plumbline/comm/float_max.h"
#include "plumbline/comm/local/local_communicator.h"

namespace plumbline {

int64_t LocalCommunicator::ShareBegin(int64_t columns, int rank) const {
  // Whole cache lines, so that no two ranks write one.
  return rank == size() ? columns : std::min(columns, columns * rank / size() / 16 * 16);
}

void LocalCommunicator::ListRows(const LeafSplit& split, int64_t columns, int64_t column) {
  rows_.clear();
  for (int peer = 0; peer < size(); ++peer) {
    const auto* nodes = reinterpret_cast<const float*>(Peer(peer).data.data());
    for (int64_t i = 0; i < split.count(peer); ++i) rows_.push_back(nodes + i * columns + column);
  }
}

void LocalCommunicator::GatherShares(int64_t columns, float* result) const {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    const int64_t begin = ShareBegin(columns, peer);
    std::copy_n(Peer(peer).result + begin, ShareBegin(columns, peer + 1) - begin, result + begin);
  }
}

Status LocalCommunicator::DoAllReduceNodes(const LeafSplit& split, std::span<const float> my_nodes,
                                           std::span<float> sum) {
  const auto columns = static_cast<int64_t>(sum.size());
  // Two ranks move the same bytes either way.
  const bool shared = size() > 2 && sum.size_bytes() > kStagedBytes;
  const Published published = {.what = Collective::kAllReduce,
                               .columns = columns,
                               .data = std::as_bytes(my_nodes),
                               .result = shared ? sum.data() : nullptr};
  const auto fits = [&](int peer) {
    return Peer(peer).columns == columns &&
           static_cast<int64_t>(Peer(peer).data.size()) == split.count(peer) * columns * 4;
  };
  const auto reduce = [&](int64_t begin, int64_t end) {
    const ScopedFloatEnv env;
    ListRows(split, columns, begin);
    SumNodes(split, rows_, end - begin, sum.data() + begin);
  };
  if (!shared) return Exchange(published, nullptr, fits, [&] { reduce(0, columns); });
  return Exchange(
      published, nullptr, fits, [&] { reduce(ShareBegin(columns, rank_), ShareBegin(columns, rank_ + 1)); },
      [&] { GatherShares(columns, sum.data()); });
}

Status LocalCommunicator::DoReduceScatterNodes(const LeafSplit& split, std::span<const float> my_nodes,
                                               const Parts& counts, std::span<float> mine) {
  const int64_t columns = counts.total();
  return Exchange(
      {.what = Collective::kReduceScatter, .columns = columns, .data = std::as_bytes(my_nodes)}, &counts,
      [&](int peer) {
        const int64_t* theirs = state_->slots[peer].counts[operation_ & 1].get();
        for (int r = 0; r < size(); ++r) {
          if (theirs[r] != counts.count(r)) return false;
        }
        return static_cast<int64_t>(Peer(peer).data.size()) == split.count(peer) * columns * 4;
      },
      [&] {
        const ScopedFloatEnv env;
        ListRows(split, columns, counts.offset(rank_));
        SumNodes(split, rows_, counts.count(rank_), mine.data());
      });
}

void LocalCommunicator::MaxOfPeers(int64_t begin, int64_t end, float* values) const {
  constexpr int64_t kBlock = 256;
  int32_t highest[kBlock];
  for (int64_t c = begin; c < end; c += kBlock) {
    const int64_t n = std::min(kBlock, end - c);
    std::fill_n(highest, n, OrderedBits(-std::numeric_limits<float>::infinity()));
    for (int peer = 0; peer < size(); ++peer) {
      const auto* theirs = reinterpret_cast<const float*>(Peer(peer).data.data()) + c;
      for (int64_t i = 0; i < n; ++i) highest[i] = std::max(highest[i], OrderedBits(theirs[i]));
    }
    for (int64_t i = 0; i < n; ++i) values[c + i] = FromOrderedBits(highest[i]);
  }
}

Status LocalCommunicator::DoAllReduceMax(std::span<float> values) {
  const auto columns = static_cast<int64_t>(values.size());
  // In place no rank may write what another still reads, so each writes its own columns first.
  const bool shared = values.size_bytes() > kStagedBytes;
  const Published published = {.what = Collective::kMax,
                               .columns = columns,
                               .data = std::as_bytes(values),
                               .result = shared ? values.data() : nullptr};
  const auto fits = [&](int peer) { return Peer(peer).columns == columns; };
  if (!shared) return Exchange(published, nullptr, fits, [&] { MaxOfPeers(0, columns, values.data()); });
  return Exchange(
      published, nullptr, fits,
      [&] { MaxOfPeers(ShareBegin(columns, rank_), ShareBegin(columns, rank_ + 1), values.data()); },
      [&] { GatherShares(columns, values.data()); });
}

}  // namespace plumbline

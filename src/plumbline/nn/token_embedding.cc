#include "plumbline/nn/token_embedding.h"

#include <algorithm>
#include <array>

#include "plumbline/kernels/embedding/embedding.h"

namespace plumbline {

Status TokenEmbedding::Forward(const RankContext& rank, const DecoderStep& step, DecoderWorkspace& workspace,
                               MatrixView<float> hidden) const {
  const int ranks = rank.stage.size();
  if (ranks == 1) {
    Embed(rank.kernel, *weight, step.tokens.subspan(step.own.begin, step.own.size()), /*first_id=*/0, hidden);
    return {};
  }
  std::array<int64_t, kMaxRanks + 1> id_begin;  // of each rank's rows of the table
  for (int r = 0; r <= ranks; ++r) id_begin[r] = r < ranks ? VocabOf(vocab, ranks, r).begin : vocab;
  const auto owner = [&](int64_t id) {
    return std::upper_bound(id_begin.begin(), id_begin.begin() + ranks, id) - id_begin.begin() - 1;
  };

  std::array<int64_t, kMaxRanks> floats{};
  std::array<int64_t, kMaxRanks + 1> first{};  // of each rank's rows among those gathered
  for (int64_t id : step.tokens) ++first[owner(id) + 1];
  for (int r = 0; r < ranks; ++r) {
    floats[r] = first[r + 1] * hidden.cols;
    first[r + 1] += first[r];
  }
  const int mine = rank.stage.rank();
  std::vector<int64_t>& ids = workspace.embedded_ids;  // those of this rank's rows
  ids.clear();
  for (int64_t id : step.tokens) {
    if (owner(id) == mine) ids.push_back(id);
  }
  const int64_t count = std::ssize(ids);
  if (count > 0) {
    Embed(rank.kernel, *weight, ids, id_begin[mine],
          MatrixView<float>(workspace.embedded_send.data(), count, hidden.cols));
  }
  const std::span<float> gathered = workspace.embedded.first(step.tokens.size() * hidden.cols);
  RETURN_IF_ERROR(AllGatherFloats(rank.stage, workspace.embedded_send.first(count * hidden.cols),
                                  std::span(floats).first(ranks), gathered));
  for (int64_t i = 0; i < step.own.end; ++i) {
    const int64_t row = first[owner(step.tokens[i])]++;
    if (i >= step.own.begin)
      std::copy_n(gathered.data() + row * hidden.cols, hidden.cols, hidden.Row(i - step.own.begin));
  }
  return {};
}

}  // namespace plumbline

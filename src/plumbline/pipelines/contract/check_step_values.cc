#include "plumbline/pipelines/contract/check_step_values.h"

#include <algorithm>
#include <charconv>
#include <limits>

namespace plumbline {
namespace {

// The checked offsets give every sequence at least one row; the shortest is returned.
Result<int64_t> CheckOffsets(std::span<const uint32_t> offsets, int64_t tokens) {
  if (offsets.empty())
    return InvalidInput(
        "input_row_offsets: got no elements, want at least the 0 of an empty batch (decoder inputs)");
  if (offsets[0] != 0)
    return InvalidInput("input_row_offsets: got {} first, want 0 (decoder inputs)", offsets[0]);
  int64_t shortest = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    const int64_t rows = int64_t{offsets[i + 1]} - offsets[i];
    if (rows < 1) {
      return InvalidInput("input_row_offsets: got a sequence of {} tokens, want at least 1 (sequence {})",
                          rows, i);
    }
    shortest = std::min(shortest, rows);
  }
  if (offsets.back() != tokens) {
    return InvalidInput("input_row_offsets: got {} last, want the {} tokens (decoder inputs)", offsets.back(),
                        tokens);
  }
  return shortest;
}

Status CheckSplits(std::span<const int64_t> splits, int64_t sequences) {
  if (splits.front() != 0)
    return InvalidInput("data_parallel_splits: got {} first, want 0 (decoder inputs)", splits.front());
  for (size_t r = 0; r + 1 < splits.size(); ++r) {
    if (splits[r + 1] < splits[r]) {
      return InvalidInput("data_parallel_splits: got {} after {}, want no less (replica {})", splits[r + 1],
                          splits[r], r);
    }
  }
  if (splits.back() != sequences) {
    return InvalidInput("data_parallel_splits: got {} last, want the {} sequences (decoder inputs)",
                        splits.back(), sequences);
  }
  return {};
}

Status CheckTokens(std::span<const int64_t> tokens, int64_t vocab) {
  if (vocab == 0) return {};
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab) {
      return InvalidInput("tokens: got id {}, want 0 to {} (row {})", tokens[i], vocab - 1, i);
    }
  }
  return {};
}

// A leaf of the kv tree as KvInputTypes names it: "replicaR/NAME".
struct KvLeaf {
  int64_t replica = -1;
  std::string_view name;
};

KvLeaf Parse(std::string_view path) {
  constexpr std::string_view kPrefix = "replica";
  KvLeaf leaf;
  const size_t slash = path.find('/');
  if (!path.starts_with(kPrefix) || slash == path.npos) return leaf;
  if (std::from_chars(path.data() + kPrefix.size(), path.data() + slash, leaf.replica).ec != std::errc())
    return {};
  leaf.name = path.substr(slash + 1);
  return leaf;
}

struct StepView {
  std::span<const uint32_t> offsets;
  std::span<const int64_t> splits;     // empty: one replica
  std::span<const int64_t> positions;  // empty: not declared

  int64_t sequences() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t replicas() const { return splits.empty() ? 1 : static_cast<int64_t>(splits.size()) - 1; }
  int64_t begin(int64_t replica) const { return splits.empty() ? 0 : splits[replica]; }
  int64_t end(int64_t replica) const { return splits.empty() ? sequences() : splits[replica + 1]; }
};

Status CheckCacheLengths(std::span<const uint32_t> lengths, int64_t replica, const StepView& step,
                         int64_t max_seq_len) {
  const int64_t begin = step.begin(replica), batch = step.end(replica) - begin;
  if (static_cast<int64_t>(lengths.size()) != batch) {
    return InvalidInput("kv/replica{}/cache_lengths: got {} sequences, want {} (decoder inputs)", replica,
                        lengths.size(), batch);
  }
  for (int64_t i = 0; i < batch; ++i) {
    const uint32_t row = step.offsets[begin + i];
    const int64_t rows = int64_t{step.offsets[begin + i + 1]} - row;
    if (max_seq_len != 0 && lengths[i] + rows > max_seq_len) {
      return InvalidInput(
          "kv/replica{}/cache_lengths: got {} and {} rows, want at most {} in all (sequence {})", replica,
          lengths[i], rows, max_seq_len, i);
    }
    for (int64_t k = 0; !step.positions.empty() && k < rows; ++k) {
      if (step.positions[row + k] == lengths[i] + k) continue;
      return InvalidInput("token_positions: got {}, want {} (row {})", step.positions[row + k],
                          lengths[i] + k, row + k);
    }
  }
  return {};
}

Status CheckPageIds(std::span<const uint32_t> table, int64_t replica, int64_t total_num_pages) {
  for (uint32_t page : table) {
    if (total_num_pages != 0 && page >= total_num_pages) {
      return InvalidInput("kv/replica{}/lookup_table: got page {}, want at most {} (decoder inputs)", replica,
                          page, total_num_pages - 1);
    }
  }
  return {};
}

Status CheckKv(const InputTree<InputTensor>& kv, const StepView& step, const StepLimits& limits) {
  for (const auto& [path, tensor] : kv.leaves) {
    const KvLeaf leaf = Parse(path);
    const bool lengths = leaf.name == "cache_lengths", table = leaf.name == "lookup_table";
    if ((!lengths && !table) || tensor.dtype != DType::kU32) continue;
    if (leaf.replica < 0 || leaf.replica >= step.replicas()) {
      return InvalidInput("kv/{}: got replica {}, want 0 to {} (decoder inputs)", path, leaf.replica,
                          step.replicas() - 1);
    }
    if (lengths) {
      RETURN_IF_ERROR(CheckCacheLengths(tensor.As<const uint32_t>(), leaf.replica, step, limits.max_seq_len));
    } else {
      RETURN_IF_ERROR(CheckPageIds(tensor.As<const uint32_t>(), leaf.replica, limits.total_num_pages));
    }
  }
  return {};
}

}  // namespace

Status CheckStepValues(const DecoderInputs<InputTensor>& inputs, const StepLimits& limits) {
  StepView step = {.offsets = inputs.input_row_offsets.As<const uint32_t>()};
  ASSIGN_OR_RETURN(const int64_t shortest, CheckOffsets(step.offsets, inputs.tokens.shape[0]));
  if (inputs.host_input_row_offsets.has_value()) {
    const auto host = inputs.host_input_row_offsets->As<const uint32_t>();
    if (!std::equal(host.begin(), host.end(), step.offsets.begin(), step.offsets.end())) {
      return InvalidInput(
          "host_input_row_offsets: got other offsets, want those of input_row_offsets (decoder inputs)");
    }
  }
  if (inputs.data_parallel_splits.has_value()) {
    step.splits = inputs.data_parallel_splits->As<const int64_t>();
    RETURN_IF_ERROR(CheckSplits(step.splits, step.sequences()));
  }
  const auto n = inputs.return_n_logits.As<const int64_t>();
  if (n.size() != 1)
    return InvalidInput("return_n_logits: got {} elements, want 1 (decoder inputs)", n.size());
  if (n[0] < 1 || n[0] > shortest) {
    if (step.sequences() == 0)
      return InvalidInput("return_n_logits: got {}, want at least 1 (decoder inputs)", n[0]);
    return InvalidInput(
        "return_n_logits: got {}, want 1 to {}, the rows of the shortest sequence (decoder inputs)", n[0],
        shortest);
  }
  RETURN_IF_ERROR(CheckTokens(inputs.tokens.As<const int64_t>(), limits.vocab));
  if (inputs.token_positions.has_value()) step.positions = inputs.token_positions->As<const int64_t>();
  for (size_t i = 0; i < step.positions.size(); ++i) {
    const int64_t position = step.positions[i];
    if (position < 0 || (limits.max_seq_len != 0 && position >= limits.max_seq_len)) {
      return InvalidInput("token_positions: got {}, want 0 to {} (row {})", position, limits.max_seq_len - 1,
                          i);
    }
  }
  return CheckKv(inputs.kv, step, limits);
}

}  // namespace plumbline

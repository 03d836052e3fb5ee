#include "plumbline/nn/expert_exchange.h"

#include <algorithm>
#include <cstring>

#include "plumbline/base/float16.h"
#include "plumbline/kernels/for_rows.h"

namespace plumbline {
namespace {

using Counts = std::array<int64_t, kMaxRanks>;

std::span<const int64_t> Bytes(const Counts& rows, int ranks, int64_t row_bytes, Counts& bytes) {
  for (int r = 0; r < ranks; ++r) bytes[r] = rows[r] * row_bytes;
  return std::span(bytes).first(ranks);
}

int64_t Sum(const Counts& rows, int ranks) {
  int64_t sum = 0;
  for (int r = 0; r < ranks; ++r) sum += rows[r];
  return sum;
}

// Part r of `send` [send[r] rows] to rank r, part r of `receive` from it.
Status AllToAllRows(Communicator& group, const void* send, const Counts& send_rows, void* receive,
                    const Counts& receive_rows, int64_t row_bytes) {
  Counts send_bytes, receive_bytes;
  const int ranks = group.size();
  const auto bytes_of = [&](const Counts& rows) { return static_cast<size_t>(Sum(rows, ranks) * row_bytes); };
  return group.AllToAllV({static_cast<const std::byte*>(send), bytes_of(send_rows)},
                         Bytes(send_rows, ranks, row_bytes, send_bytes),
                         {static_cast<std::byte*>(receive), bytes_of(receive_rows)},
                         Bytes(receive_rows, ranks, row_bytes, receive_bytes));
}

}  // namespace

ExpertExchange::Rows ExpertExchange::Largest(const DecoderConfig& config, const DecoderShard& shard,
                                             int64_t tokens, int64_t all_tokens) {
  const int64_t choices = config.experts.per_token, tp = shard.degrees.tp;
  const int64_t home = (tokens + tp - 1) / tp;
  return {.home = home,
          .sent = home * std::min<int64_t>(choices, shard.degrees.ep),
          .received = all_tokens,
          .pairs = all_tokens * std::min(choices, shard.experts.size())};
}

void ExpertExchange::Reserve(const DecoderConfig& config, const DecoderShard& shard, int64_t tokens,
                             int64_t all_tokens) {
  const Rows largest = Largest(config, shard, tokens, all_tokens);
  owner_.resize(config.experts.count);
  for (int r = 0; r < shard.degrees.ep; ++r) {
    const Range experts = ExpertsOf(config, shard.degrees, r);
    first_expert_.push_back(static_cast<int32_t>(experts.begin));
    std::fill(owner_.begin() + experts.begin, owner_.begin() + experts.end, static_cast<int16_t>(r));
  }
  all_ids_.reserve(all_tokens * config.experts.per_token);
  sent_rows_.reserve(largest.sent);
  pair_experts_.reserve(largest.pairs);
  pair_rows_.reserve(largest.pairs);
  slots_.reserve(largest.home * config.experts.per_token);
}

Range ExpertExchange::Begin(const RankContext& rank, std::span<const int64_t> replica_rows) {
  const int tp = rank.shard.degrees.tp;
  for (int r = 0; r < rank.experts.size(); ++r)
    home_rows_[r] = SplitEvenly(replica_rows[r / tp], tp, r % tp).size();
  return SplitEvenly(replica_rows[rank.shard.at.replica], tp, rank.shard.at.tensor);
}

Status ExpertExchange::Plan(const RankContext& rank, MatrixView<const int32_t> ids) {
  const int ranks = rank.experts.size();
  Counts counts;
  for (int r = 0; r < ranks; ++r) counts[r] = home_rows_[r] * ids.cols;
  all_ids_.resize(Sum(counts, ranks));
  RETURN_IF_ERROR(AllGatherArrays<int32_t>(rank.experts, {ids.data, static_cast<size_t>(ids.rows * ids.cols)},
                                           std::span(counts).first(ranks), all_ids_));
  PlanHome(ids, ranks);
  PlanOwner(rank.experts.rank(), ranks, ids.cols);
  return {};
}

// A row goes once to each rank that holds experts of it, and comes back once an expert.
void ExpertExchange::PlanHome(MatrixView<const int32_t> ids, int ranks) {
  const auto for_each_owner = [&](int64_t row, auto&& fn) {
    uint64_t seen = 0;
    static_assert(kMaxRanks <= 64);
    for (int64_t i = 0; i < ids.cols; ++i) {
      const int owner = owner_[ids.Row(row)[i]];
      if ((seen >> owner & 1) == 0) fn(owner);
      seen |= uint64_t{1} << owner;
    }
  };
  send_.fill(0);
  return_.fill(0);
  for (int64_t row = 0; row < ids.rows; ++row) {
    for_each_owner(row, [&](int owner) { ++send_[owner]; });
    for (int64_t i = 0; i < ids.cols; ++i) ++return_[owner_[ids.Row(row)[i]]];
  }
  Counts next_sent, next_returned;
  int64_t sent = 0, returned = 0;
  for (int r = 0; r < ranks; ++r) {
    next_sent[r] = sent;
    next_returned[r] = returned;
    sent += send_[r];
    returned += return_[r];
  }
  sent_rows_.resize(sent);
  slots_.resize(returned);
  for (int64_t row = 0; row < ids.rows; ++row) {
    for_each_owner(row, [&](int owner) { sent_rows_[next_sent[owner]++] = static_cast<int32_t>(row); });
    for (int64_t i = 0; i < ids.cols; ++i)
      slots_[row * ids.cols + i] = static_cast<int32_t>(next_returned[owner_[ids.Row(row)[i]]]++);
  }
}

void ExpertExchange::PlanOwner(int me, int ranks, int64_t choices) {
  receive_.fill(0);
  give_.fill(0);
  pair_experts_.clear();
  pair_rows_.clear();
  received_rows_ = 0;
  const int32_t* ids = all_ids_.data();
  for (int home = 0; home < ranks; ++home) {
    for (int64_t row = 0; row < home_rows_[home]; ++row, ids += choices) {
      const size_t before = pair_experts_.size();
      for (int64_t i = 0; i < choices; ++i) {
        if (owner_[ids[i]] != me) continue;
        pair_experts_.push_back(ids[i] - first_expert_[me]);
        pair_rows_.push_back(static_cast<int32_t>(received_rows_));
      }
      if (pair_experts_.size() == before) continue;
      ++received_rows_;
      ++receive_[home];
      give_[home] += static_cast<int64_t>(pair_experts_.size() - before);
    }
  }
}

Status ExpertExchange::Dispatch(const RankContext& rank, MatrixView<const float> home, Compute compute,
                                std::span<float> send, std::span<float> raw,
                                std::span<float> received) const {
  const int64_t hidden = home.cols, sent = std::ssize(sent_rows_);
  ThreadPool& pool = rank.kernel.pool;
  if (compute != Compute::kBf16) {
    ForRows(pool, sent, sent * hidden, [&](int64_t begin, int64_t count) {
      for (int64_t i = begin; i < begin + count; ++i)
        std::copy_n(home.Row(sent_rows_[i]), hidden, send.data() + i * hidden);
    });
    return AllToAllRows(rank.experts, send.data(), send_, received.data(), receive_, hidden * 4);
  }
  auto* out = reinterpret_cast<bf16_bits*>(send.data());
  const auto* in = reinterpret_cast<const bf16_bits*>(raw.data());
  ForRows(pool, sent, sent * hidden * 2, [&](int64_t begin, int64_t count) {
    for (int64_t i = begin; i < begin + count; ++i) {
      const float* from = home.Row(sent_rows_[i]);
      for (int64_t c = 0; c < hidden; ++c) out[i * hidden + c] = F32ToBf16(from[c]);
    }
  });
  RETURN_IF_ERROR(AllToAllRows(rank.experts, out, send_, raw.data(), receive_, hidden * 2));
  ForRows(pool, received_rows_, received_rows_ * hidden, [&](int64_t begin, int64_t count) {
    for (int64_t i = begin * hidden; i < (begin + count) * hidden; ++i) received[i] = Bf16ToF32(in[i]);
  });
  return {};
}

Status ExpertExchange::Return(const RankContext& rank, MatrixView<const float> given,
                              const ExpertGroups& groups, std::span<float> give,
                              std::span<float> returned) const {
  const int64_t hidden = given.cols, pairs = groups.pairs();
  ForRows(rank.kernel.pool, pairs, pairs * hidden, [&](int64_t begin, int64_t count) {
    for (int64_t i = begin; i < begin + count; ++i)
      std::copy_n(given.Row(groups.slots[i]), hidden, give.data() + i * hidden);
  });
  return AllToAllRows(rank.experts, give.data(), give_, returned.data(), return_, hidden * 4);
}

}  // namespace plumbline

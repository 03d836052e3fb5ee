// Sends the rows of a step to the ranks that hold their experts, and brings back what these give
// (docs/parallel.md).
//
// The experts are cut over rank.experts: the tensor-parallel ranks of all replicas of a stage that have one
// context shard. Tensor-parallel ranks have the same rows, so each is the home of an even part of them, and
// only a row's home sends it. All ranks take part in every exchange, also those that are home to no row.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "plumbline/base/dtype.h"
#include "plumbline/nn/expert_groups.h"
#include "plumbline/nn/rank_context.h"

namespace plumbline {

class ExpertExchange {
 public:
  // What the exchange needs of the workspace, for the largest step (dense rows of `hidden` floats).
  struct Rows {
    int64_t home = 0;      // that this rank is home to
    int64_t sent = 0;      // one for each rank that holds experts of a row
    int64_t received = 0;  // of all homes
    int64_t pairs = 0;     // of a received row and an expert here
  };
  // Of steps with at most `tokens` rows a replica, `all_tokens` in all.
  static Rows Largest(const DecoderConfig& config, const DecoderShard& shard, int64_t tokens,
                      int64_t all_tokens);
  // Memory for such steps.
  void Reserve(const DecoderConfig& config, const DecoderShard& shard, int64_t tokens, int64_t all_tokens);

  // The rows of this rank's replica that it is home to, of a step of replica_rows[r] rows of replica r.
  Range Begin(const RankContext& rank, std::span<const int64_t> replica_rows);
  // Tells every rank the experts of the home rows, ids [home rows, choices], and plans what goes where.
  Status Plan(const RankContext& rank, MatrixView<const int32_t> ids);

  // received [received rows, hidden] = the rows of all homes that have an expert here, in the order of homes.
  // Those of a bf16 run are rounded to it, which the experts do first thing: half the bytes. `send`
  // and `raw` have room for the rows sent and received.
  Status Dispatch(const RankContext& rank, MatrixView<const float> home, Compute compute,
                  std::span<float> send, std::span<float> raw, std::span<float> received) const;
  // returned [home rows * choices, hidden] = what the experts gave for the home rows; slots() says which is
  // which. given [pairs, hidden] is in the order of `groups`; `give` has its size.
  Status Return(const RankContext& rank, MatrixView<const float> given, const ExpertGroups& groups,
                std::span<float> give, std::span<float> returned) const;

  int64_t home_rows(int rank) const { return home_rows_[rank]; }  // that a rank is home to
  int64_t received_rows() const { return received_rows_; }
  // Of the pairs here, in the order of homes, rows and choices: the expert, counted from this rank's first,
  // and the row among those received.
  std::span<const int32_t> pair_experts() const { return pair_experts_; }
  std::span<const int32_t> pair_rows() const { return pair_rows_; }
  // [home rows, choices] the row of `returned`.
  std::span<const int32_t> slots() const { return slots_; }

 private:
  void PlanHome(MatrixView<const int32_t> ids, int ranks);
  void PlanOwner(int me, int ranks, int64_t choices);

  std::vector<int16_t> owner_;                  // [experts]
  std::vector<int32_t> first_expert_;           // [ranks]
  std::array<int64_t, kMaxRanks> home_rows_{};  // of each rank
  std::vector<int32_t> all_ids_;                // [rows of all homes, choices]
  std::vector<int32_t> sent_rows_;              // the home row of each row sent
  std::vector<int32_t> pair_experts_, pair_rows_, slots_;
  int64_t received_rows_ = 0;
  // Rows to and from each rank, there and back.
  std::array<int64_t, kMaxRanks> send_{}, receive_{}, give_{}, return_{};
};

}  // namespace plumbline

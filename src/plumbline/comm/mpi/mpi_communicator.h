// One rank's end of a group under MPI.
//
// A collective is one message from each rank to each other, a header that says which operation it belongs to
// and the bytes; what is received is checked, then put together or added here. MPI works on buffers of this
// class alone, never on the caller's: an operation that an error cuts short leaves them to MPI and returns.
#pragma once

#include <ctime>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "plumbline/comm/communicator.h"
#include "plumbline/comm/mpi/mpi_core.h"

namespace plumbline {

class MpiCommunicator final : public Communicator {
 public:
  // `members`: ranks of the job, in rank order. The core outlives the group.
  MpiCommunicator(MpiCore* core, int family, int context, std::vector<int> members, int rank);
  ~MpiCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }

  // Called by every rank: a context that no member uses yet, and the ranks that gave `color`, by key, then
  // rank. Groups of different colours may share a context: no two ranks are in more than one of them.
  Result<int> AgreeOnContext(int color, int key, std::vector<int>* order);

 private:
  enum class What : uint32_t {
    kBarrier,
    kBroadcast,
    kAllGather,
    kAllToAll,
    kSum,
    kShares,
    kScatter,
    kMax,
    kSplit
  };
  // Begins every message of a collective; what follows is aligned for floats.
  struct alignas(64) Header {
    What what = What::kBarrier;
    int32_t root = 0;
    uint64_t operation = 0;
    int64_t columns = 0;
    uint64_t layout = 0;  // equal where the ranks agree on who gets what
    int64_t bytes = 0;
  };
  struct InFlight {
    MPI_Request request = MPI_REQUEST_NULL;
    MpiBuffer buffer;
  };

  Status DoBarrier() override;
  Status DoBroadcast(std::span<std::byte> bytes, int root) override;
  Status DoAllGather(std::span<const std::byte> mine, const Parts& parts, std::span<std::byte> all) override;
  Status DoAllToAll(std::span<const std::byte> send, const Parts& send_parts, std::span<std::byte> receive,
                    const Parts& receive_parts) override;
  Status DoAllReduceNodes(const LeafSplit& split, std::span<const float> my_nodes,
                          std::span<float> sum) override;
  Status DoReduceScatterNodes(const LeafSplit& split, std::span<const float> my_nodes, const Parts& counts,
                              std::span<float> mine) override;
  Status DoAllReduceMax(std::span<float> values) override;
  Status DoSend(std::span<const std::byte> bytes, int peer, int tag) override;
  Status DoReceive(std::span<std::byte> bytes, int peer, int tag) override;
  Result<std::unique_ptr<Communicator>> DoSplit(int color, int key) override;
  Error DoAbort(Error error) override;
  Status DoHealth() const override { return poison_->status(); }

  // One collective: the caller sets send_[peer] and want_[peer] (bytes), calls Begin, writes what goes to
  // each peer at To(peer) (where everyone gets the `same`, once for all), calls Finish and finds what came at
  // From(peer).
  Status Begin(Header header, bool same);
  Status Finish();
  std::byte* To(int peer) const { return out_.bytes.get() + out_offsets_[peer] + sizeof(Header); }
  const std::byte* From(int peer) const { return in_.bytes.get() + in_offsets_[peer] + sizeof(Header); }
  // All three where everyone gets `mine`.
  Status Share(const Header& header, std::span<const std::byte> mine);
  Status Post();
  Status Complete();
  Status Check();
  // Asks done() until it says so, ever less eagerly. An error of the family ends it, and so does a member
  // that left and has nothing more to give.
  template <typename Done>
  Status Poll(Done&& done);
  Status CheckLeft(int64_t* first_seen);
  Status MpiError(const char* what, int code);
  // Leaves the buffers of the operation under way to MPI.
  void Abandon();
  void DropSent();

  // Sends peer r columns [offsets[r], offsets[r + 1]) of this rank's nodes; out gets the sums of this rank's
  // columns.
  Status ScatterSums(const Header& header, const LeafSplit& split, std::span<const float> my_nodes,
                     std::span<const int64_t> offsets, float* out);
  // Sums columns [begin, end) of this rank's nodes [count, columns] and those that came, which begin there.
  void SumColumns(const LeafSplit& split, std::span<const float> my_nodes, int64_t columns, int64_t begin,
                  int64_t end, float* out);

  MpiCore* const core_;
  const int family_;
  const int context_;
  const std::vector<int> members_;
  const int rank_;
  const std::shared_ptr<Poison> poison_;
  uint64_t operation_ = 0;
  MpiBuffer out_, in_;
  Header header_ = {};
  bool same_ = false;
  std::vector<int64_t> send_, want_;               // [size], bytes without headers
  std::vector<int64_t> out_offsets_, in_offsets_;  // [size], where messages begin
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  std::vector<InFlight> sent_;
  std::vector<MpiBuffer> spare_;
  std::vector<int64_t> share_offsets_;
  std::vector<const float*> rows_;
};

template <typename Done>
Status MpiCommunicator::Poll(Done&& done) {
  constexpr int kYields = 200;
  constexpr timespec kPause = {.tv_sec = 0, .tv_nsec = 50'000};
  int64_t first_seen = 0;
  for (int i = 0;; ++i) {
    if (done()) return {};
    if (i < core_->spins) continue;
    if (poison_->set()) return poison_->status();
    if (i < core_->spins + kYields) {
      std::this_thread::yield();
      continue;
    }
    if (i % 32 == 0) RETURN_IF_ERROR(CheckLeft(&first_seen));
    nanosleep(&kPause, nullptr);
  }
}

}  // namespace plumbline

// The messages of a group under MPI; mpi_collectives.cc says what they carry.
#include "plumbline/comm/mpi/mpi_communicator.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>
#include <utility>

namespace plumbline {
namespace {

// How long a member that left may take to deliver what it had sent.
constexpr int64_t kGraceMilliseconds = 500;

int64_t Milliseconds() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

MpiCommunicator::MpiCommunicator(MpiCore* core, int family, int context, std::vector<int> members, int rank)
    : core_(core),
      family_(family),
      context_(context),
      members_(std::move(members)),
      rank_(rank),
      poison_(core->side->Family(family)),
      send_(members_.size()),
      want_(members_.size()),
      out_offsets_(members_.size()),
      in_offsets_(members_.size()) {}

MpiCommunicator::~MpiCommunicator() {
  core_->side->Leave(context_);
  // MPI moves a large message only while both ends call it.
  (void)Poll([&] {
    DropSent();
    return sent_.empty();
  });
  for (InFlight& sent : sent_) core_->abandoned.push_back(std::move(sent.buffer));
}

Error MpiCommunicator::DoAbort(Error error) { return core_->side->Abort(family_, core_->rank, error); }

Status MpiCommunicator::MpiError(const char* what, int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return Abort(Failed("mpi: {}: {}", what, text).error());
}

Status MpiCommunicator::CheckLeft(int64_t* first_seen) {
  for (int member : members_) {
    if (member == core_->rank || !core_->side->HasLeft(context_, member)) continue;
    if (*first_seen == 0) *first_seen = Milliseconds();
    if (Milliseconds() - *first_seen < kGraceMilliseconds) return {};
    return std::unexpected(core_->side->Abort(family_, member, Failed("exited while others wait").error()));
  }
  return {};
}

void MpiCommunicator::Abandon() {
  core_->abandoned.push_back(std::exchange(out_, {}));
  core_->abandoned.push_back(std::exchange(in_, {}));
}

Status MpiCommunicator::Begin(Header header, bool same) {
  if (poison_->set()) return poison_->status();
  header.operation = ++operation_;
  header_ = header;
  same_ = same;
  // Every message begins at a multiple of a cache line.
  const auto room = [](int64_t bytes) {
    return static_cast<int64_t>(sizeof(Header)) + (bytes + 63) / 64 * 64;
  };
  int64_t out = 0;
  int64_t in = 0;
  for (int peer = 0; peer < size(); ++peer) {
    if (std::max(send_[peer], want_[peer]) > INT_MAX - static_cast<int64_t>(sizeof(Header))) {
      return Abort(InvalidInput("mpi: got a message of {} bytes, want less than 2 GiB",
                                std::max(send_[peer], want_[peer]))
                       .error());
    }
    out_offsets_[peer] = out;
    in_offsets_[peer] = in;
    if (peer == rank_) continue;
    in += room(want_[peer]);
    if (!same) out += room(send_[peer]);
  }
  if (same) out = room(send_[rank_]);
  in_.Reserve(in);
  out_.Reserve(out);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_ && !same) continue;
    header.bytes = send_[peer];
    std::memcpy(out_.bytes.get() + out_offsets_[peer], &header, sizeof(header));
  }
  return {};
}

Status MpiCommunicator::Finish() {
  Status status = Post();
  if (status.has_value()) status = Complete();
  if (status.has_value()) status = Check();
  if (!status.has_value()) Abandon();
  return status;
}

Status MpiCommunicator::Share(const Header& header, std::span<const std::byte> mine) {
  std::ranges::fill(send_, static_cast<int64_t>(mine.size()));
  RETURN_IF_ERROR(Begin(header, true));
  std::ranges::copy(mine, To(rank_));
  return Finish();
}

Status MpiCommunicator::Post() {
  const int tag = MpiTag(context_, true, static_cast<uint32_t>(operation_));
  requests_.clear();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    requests_.push_back(MPI_REQUEST_NULL);
    const int code = MPI_Irecv(in_.bytes.get() + in_offsets_[peer],
                               static_cast<int>(want_[peer] + static_cast<int64_t>(sizeof(Header))), MPI_BYTE,
                               members_[peer], tag, core_->comm, &requests_.back());
    if (code != MPI_SUCCESS) return MpiError("receive", code);
  }
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    requests_.push_back(MPI_REQUEST_NULL);
    const int code = MPI_Isend(out_.bytes.get() + out_offsets_[peer],
                               static_cast<int>(send_[peer] + static_cast<int64_t>(sizeof(Header))), MPI_BYTE,
                               members_[peer], tag, core_->comm, &requests_.back());
    if (code != MPI_SUCCESS) return MpiError("send", code);
  }
  statuses_.resize(requests_.size());
  return {};
}

// A message longer than what this rank wants is what MPI calls an error.
Status MpiCommunicator::Complete() {
  int code = MPI_SUCCESS;
  RETURN_IF_ERROR(Poll([&] {
    int done = 0;
    code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, statuses_.data());
    return done != 0 || code != MPI_SUCCESS;
  }));
  if (code == MPI_SUCCESS) return {};
  if (code == MPI_ERR_IN_STATUS) {
    for (const MPI_Status& status : statuses_) {
      if (status.MPI_ERROR != MPI_SUCCESS && status.MPI_ERROR != MPI_ERR_PENDING) code = status.MPI_ERROR;
    }
  }
  return MpiError("collectives do not agree, or the transfer failed", code);
}

Status MpiCommunicator::Check() {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    Header got;
    std::memcpy(&got, From(peer) - sizeof(got), sizeof(got));
    if (got.what == header_.what && got.root == header_.root && got.operation == header_.operation &&
        got.columns == header_.columns && got.layout == header_.layout && got.bytes == want_[peer]) {
      continue;
    }
    return Abort(
        InvalidInput("collectives do not agree: got operation {} of {} bytes from rank {}, want {} of {}",
                     static_cast<uint32_t>(got.what), got.bytes, members_[peer],
                     static_cast<uint32_t>(header_.what), want_[peer])
            .error());
  }
  return {};
}

void MpiCommunicator::DropSent() {
  for (size_t i = 0; i < sent_.size();) {
    int done = 0;
    MPI_Test(&sent_[i].request, &done, MPI_STATUS_IGNORE);
    if (done == 0) {
      ++i;
      continue;
    }
    spare_.push_back(std::move(sent_[i].buffer));
    sent_[i] = std::move(sent_.back());
    sent_.pop_back();
  }
}

Status MpiCommunicator::DoSend(std::span<const std::byte> bytes, int peer, int tag) {
  if (poison_->set()) return poison_->status();
  if (bytes.size() > INT_MAX) {
    return Abort(InvalidInput("mpi: got a message of {} bytes, want less than 2 GiB", bytes.size()).error());
  }
  DropSent();
  InFlight& sent = sent_.emplace_back();
  if (!spare_.empty()) {
    sent.buffer = std::move(spare_.back());
    spare_.pop_back();
  }
  std::ranges::copy(bytes, sent.buffer.Reserve(std::max<size_t>(bytes.size(), 1)));
  const int code =
      MPI_Isend(sent.buffer.bytes.get(), static_cast<int>(bytes.size()), MPI_BYTE, members_[peer],
                MpiTag(context_, false, static_cast<uint32_t>(tag)), core_->comm, &sent.request);
  return code == MPI_SUCCESS ? Status() : MpiError("send", code);
}

Status MpiCommunicator::DoReceive(std::span<std::byte> bytes, int peer, int tag) {
  if (poison_->set()) return poison_->status();
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  int code = MPI_SUCCESS;
  RETURN_IF_ERROR(Poll([&] {
    int found = 0;
    code = MPI_Improbe(members_[peer], MpiTag(context_, false, static_cast<uint32_t>(tag)), core_->comm,
                       &found, &message, &status);
    return found != 0 || code != MPI_SUCCESS;
  }));
  if (code != MPI_SUCCESS) return MpiError("receive", code);
  int size = 0;
  MPI_Get_count(&status, MPI_BYTE, &size);
  MpiBuffer buffer;
  std::swap(buffer, in_);
  buffer.Reserve(std::max(size, 1));
  MPI_Request request = MPI_REQUEST_NULL;
  code = MPI_Imrecv(buffer.bytes.get(), size, MPI_BYTE, &message, &request);
  Status done = code == MPI_SUCCESS ? Poll([&] {
    int completed = 0;
    code = MPI_Test(&request, &completed, MPI_STATUS_IGNORE);
    return completed != 0 || code != MPI_SUCCESS;
  })
                                    : Status();
  std::swap(buffer, in_);
  if (!done.has_value()) {
    Abandon();
    return done;
  }
  if (code != MPI_SUCCESS) return MpiError("receive", code);
  if (static_cast<size_t>(size) != bytes.size()) {
    return Abort(InvalidInput("receive: got {} bytes, want {} (from rank {}, tag {})", size, bytes.size(),
                              members_[peer], tag)
                     .error());
  }
  std::copy_n(in_.bytes.get(), size, bytes.data());
  return {};
}

}  // namespace plumbline

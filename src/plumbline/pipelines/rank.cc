#include "plumbline/pipelines/rank.h"

#include <array>
#include <cstring>
#include <utility>

#include "plumbline/pipelines/contract/decoder_message.h"

namespace plumbline {
namespace {

// A command and as much of its payload as goes with it: a decode step's fits.
struct Envelope {
  RankCommand command;
  std::array<std::byte, 4096 - sizeof(RankCommand)> payload;
};

template <typename T>
T Read(std::span<const std::byte>& bytes) {
  T value;
  PLUMBLINE_CHECK(bytes.size() >= sizeof(T));
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes = bytes.subspan(sizeof(T));
  return value;
}

}  // namespace

Rank::Rank(std::shared_ptr<const Decoder> decoder, int threads, Isa isa)
    : pool_(threads), isa_(isa), decoder_(std::move(decoder)) {}

Result<std::unique_ptr<Rank>> Rank::Join(std::unique_ptr<Communicator> world,
                                         std::shared_ptr<const Decoder> decoder, int threads, Isa isa) {
  std::unique_ptr<Rank> rank(new Rank(std::move(decoder), threads, isa));
  rank->world_ = std::move(world);
  ASSIGN_OR_RETURN(rank->groups_, RankGroups::Split(*rank->world_, rank->decoder_->shard));
  rank->context_ = std::make_unique<RankContext>(rank->groups_.Context({rank->pool_, rank->isa_}));
  return rank;
}

Status Rank::Command(RankCommand::Kind kind, int64_t engine, std::span<std::byte> payload,
                     const OnOutputs& on_outputs) {
  const RankCommand command{.kind = kind, .engine = engine, .bytes = std::ssize(payload)};
  if (world_->size() > 1) {
    Envelope envelope{.command = command};
    const size_t inside = std::min(payload.size(), envelope.payload.size());
    std::copy_n(payload.data(), inside, envelope.payload.data());
    RETURN_IF_ERROR(world_->Broadcast(std::as_writable_bytes(std::span(&envelope, 1)), 0));
    if (inside < payload.size()) {
      received_.assign(payload.begin() + inside, payload.end());
      RETURN_IF_ERROR(world_->Broadcast(received_, 0));
    }
  }
  Status status = Obey(command, payload, on_outputs);
  if (!status && world_->size() > 1) return world_->Abort(std::move(status).error());
  return status;
}

Status Rank::Serve() {
  while (true) {
    Envelope envelope;
    RETURN_IF_ERROR(world_->Broadcast(std::as_writable_bytes(std::span(&envelope, 1)), 0));
    const int64_t inside = std::min<int64_t>(envelope.command.bytes, std::ssize(envelope.payload));
    received_.resize(envelope.command.bytes);
    std::copy_n(envelope.payload.data(), inside, received_.data());
    if (inside < envelope.command.bytes)
      RETURN_IF_ERROR(world_->Broadcast(std::span(received_).subspan(inside), 0));
    if (envelope.command.kind == RankCommand::Kind::kStop) return {};
    if (Status status = Obey(envelope.command, received_, {}); !status)
      return world_->Abort(std::move(status).error());
  }
}

Status Rank::Obey(const RankCommand& command, std::span<std::byte> payload, const OnOutputs& on_outputs) {
  switch (command.kind) {
    case RankCommand::Kind::kCreate:
      return Create(command.engine, payload);
    case RankCommand::Kind::kResize:
      return Resize(command.engine, payload);
    case RankCommand::Kind::kStep:
      return Step(*engines_.at(command.engine), payload, on_outputs);
    case RankCommand::Kind::kRelease:
      engines_.erase(command.engine);
      return {};
    case RankCommand::Kind::kStop:
      break;
  }
  return {};
}

Status Rank::Resize(int64_t engine, std::span<const std::byte> payload) {
  return engines_.at(engine)->Resize(Read<ExecutorOptions>(payload));
}

Status Rank::Create(int64_t engine, std::span<const std::byte> payload) {
  const auto options = Read<ExecutorOptions>(payload);
  std::vector<int32_t> layers(options.layers);
  for (int32_t& layer : layers) layer = Read<int32_t>(payload);
  ASSIGN_OR_RETURN(engines_[engine], RankExecutor::Create(*context_, decoder_, options, std::move(layers)));
  return {};
}

Status Rank::Step(RankExecutor& executor, std::span<std::byte> payload, const OnOutputs& on_outputs) {
  std::span<const std::byte> header = payload;
  const int64_t count = Read<int64_t>(header);
  size_t begin = (1 + count) * sizeof(int64_t);
  for (int64_t i = 0; i < count; ++i) {
    begin = (begin + kMessageAlignment - 1) / kMessageAlignment * kMessageAlignment;
    const int64_t size = Read<int64_t>(header);
    ASSIGN_OR_RETURN(
        const ModelOutputs* outputs,
        executor.Execute(payload.subspan(begin, size), on_outputs ? InputCheck::kDone : InputCheck::kFull));
    begin += size;
    if (on_outputs) RETURN_IF_ERROR(on_outputs(i, *outputs));
  }
  return {};
}

}  // namespace plumbline

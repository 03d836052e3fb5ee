// One rank: its threads, its part of the weights, the groups it talks in, and the engines it runs steps for.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>

#include "plumbline/nn/decoder.h"
#include "plumbline/nn/rank_groups.h"
#include "plumbline/pipelines/rank_executor.h"

namespace plumbline {

// What the controller (rank 0) tells every rank; `bytes` of payload follow.
struct RankCommand {
  enum class Kind : int64_t {
    kCreate,  // an engine: ExecutorOptions, then its captured layers (i32)
    kResize,  // ExecutorOptions
    kStep,  // micro-batches: i64 number, i64 sizes [number], then their messages, each from a multiple of 16
    kRelease,  // the engine is no more
    kStop,
  };
  Kind kind = Kind::kStop;
  int64_t engine = 0;
  int64_t bytes = 0;
};

class Rank {
 public:
  // Splits `world` into the groups of the decoder's shard; every rank of the world does so at once.
  static Result<std::unique_ptr<Rank>> Join(std::unique_ptr<Communicator> world,
                                            std::shared_ptr<const Decoder> decoder, int threads, Isa isa);

  const RankContext& context() const { return *context_; }
  const Decoder& decoder() const { return *decoder_; }
  Communicator& world() { return *world_; }
  int64_t MovedBytes() const { return groups_.MovedBytes(); }

  // Obeys the controller until it says stop. Returns the first error of any rank, which every rank then has.
  Status Serve();

  // The controller's way to say something: to every other rank, then to this one. `on_outputs` is called
  // after each micro-batch of a step, which this rank, having packed it, does not check again. An error of
  // this rank poisons the world.
  using OnOutputs = std::function<Status(int64_t micro_batch, const ModelOutputs& outputs)>;
  Status Command(RankCommand::Kind kind, int64_t engine, std::span<std::byte> payload,
                 const OnOutputs& on_outputs = {});

  // What an engine's KV pages and declared tensors are on this rank.
  InputTensor KvBlocks(int64_t engine) { return engines_.at(engine)->KvBlocks(); }
  const RankTensors& Tensors(int64_t engine) const { return engines_.at(engine)->tensors(); }
  const ExpertParallelExchange& Experts(int64_t engine) const { return engines_.at(engine)->experts(); }

 private:
  Rank(std::shared_ptr<const Decoder> decoder, int threads, Isa isa);
  Status Obey(const RankCommand& command, std::span<std::byte> payload, const OnOutputs& on_outputs);
  Status Create(int64_t engine, std::span<const std::byte> payload);
  Status Resize(int64_t engine, std::span<const std::byte> payload);
  Status Step(RankExecutor& executor, std::span<std::byte> payload, const OnOutputs& on_outputs);

  ThreadPool pool_;
  Isa isa_;
  std::shared_ptr<const Decoder> decoder_;
  std::unique_ptr<Communicator> world_;
  RankGroups groups_;
  std::unique_ptr<RankContext> context_;
  std::map<int64_t, std::unique_ptr<RankExecutor>> engines_;
  std::vector<std::byte> received_;
};

}  // namespace plumbline

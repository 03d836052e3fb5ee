// A deployment whose decoder takes every field, and random ragged batches for it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "plumbline/pipelines/contract/decoder_registration.h"
#include "plumbline/pipelines/contract/kv_cache_inputs.h"

namespace plumbline {

// Keeps the memory of a test's tensors.
class Tensors {
 public:
  InputTensor Make(DType dtype, const InputShape& shape, DeviceRef device) {
    memory_.push_back(Buffer::Allocate(ByteSize(dtype, shape.Elements()) + 1).value());
    return {.dtype = dtype, .shape = shape, .data = memory_.back().data(), .device = device};
  }

 private:
  std::list<Buffer> memory_;
};

// Of each row the token that follows (-1: none), and of each sequence the request's number.
class TargetStore : public RequestStateStore {
 public:
  TargetStore(int64_t most_rows, int64_t most_requests, DeviceRef device) : most_requests_(most_requests) {
    inputs_.Add("targets", {.dtype = DType::kI64, .shape = {"total_seq_len"}, .device = device});
    inputs_.Add("requests", {.dtype = DType::kU32, .shape = {"requests"}});
    EXPECT_TRUE(buffers_.Declare("targets", DType::kI64, {most_rows}, device).has_value());
    EXPECT_TRUE(buffers_.Declare("requests", DType::kU32, {most_requests}, DeviceRef::Host()).has_value());
  }
  const InputTree<InputSpec>& state_inputs() const override { return inputs_; }
  std::optional<int64_t> MaxDim(std::string_view dim) const override {
    return dim == "requests" ? std::optional(most_requests_) : std::nullopt;
  }
  Status Fill(const FlatBatch& batch, std::span<InputTensor* const> state) override {
    ASSIGN_OR_RETURN(*state[0], buffers_.View("targets", {batch.tokens}));
    ASSIGN_OR_RETURN(*state[1], buffers_.View("requests", {batch.sequences}));
    int64_t* target = state[0]->As<int64_t>().data();
    uint32_t* request = state[1]->As<uint32_t>().data();
    for (ReplicaBatch replica : batch.replica_batches) {
      for (const TextContext& context : replica) {
        for (int64_t k = context.processed_length + 1; k <= context.current_position(); ++k) {
          *target++ = k < static_cast<int64_t>(context.tokens.size()) ? context.tokens[k] : -1;
        }
        *request++ = static_cast<uint32_t>(context.request);
      }
    }
    return {};
  }

 private:
  int64_t most_requests_;
  InputTree<InputSpec> inputs_;
  DeclaredBuffers buffers_;
};

struct DeploymentOptions {
  int replicas = 2;
  int shards = 2;
  bool every_field = false;  // also vision, ep, lora, constants, scratch, stage_boundary
};

class Deployment {
 public:
  explicit Deployment(const DeploymentOptions& options);

  // A random batch; the contexts are kept. A replica is empty now and then.
  std::vector<ReplicaBatch> RandomBatches(std::mt19937& random, int64_t least_active = 1);
  Result<const DecoderInputs<InputTensor>*> Prepare(std::span<const ReplicaBatch> batches, int64_t n = 1);

  ArchConfig config;
  BatchProcessorRuntime runtime;
  DecoderRegistration registration;
  std::unique_ptr<DecoderBatchProcessor> processor;
  std::unique_ptr<KvCacheInputBuilder> kv;
  std::unique_ptr<TargetStore> store;
  std::unique_ptr<ConstantInputs> constants;
  std::unique_ptr<DecoderScratch> scratch;
  ExpertParallelExchange exchange;
  VisionInputs<InputTensor> vision;
  std::vector<InputTensor> lora;
  InputTree<InputTensor> boundary;
  BroughtInputs brought;
  Tensors tensors;

 private:
  void Register();
  void Bring();
  bool every_field_;
  std::vector<std::vector<TextContext>> contexts_;
  std::list<std::vector<int32_t>> tokens_;
  std::list<std::vector<uint32_t>> pages_;
};

inline Deployment::Deployment(const DeploymentOptions& options) : every_field_(options.every_field) {
  config = {.vocab = 1000, .takes_token_positions = true, .takes_batch_context_lengths = true};
  runtime = {.max_batch_size = 5,
             .max_seq_len = 200,
             .max_batch_input_tokens = 300,
             .data_parallel_degree = options.replicas};
  runtime.kv_params = {.page_size = 64, .total_num_pages = 50, .page_shape = {Dim("page_bytes")}};
  for (int r = 0, device = 0; r < options.replicas; ++r) {
    runtime.kv_params.shards.emplace_back();
    for (int s = 0; s < options.shards; ++s, ++device) {
      runtime.devices.push_back(DeviceRef::Rank(device));
      runtime.kv_params.shards.back().push_back(DeviceRef::Rank(device));
    }
  }
  for (DeviceRef device : runtime.devices) {
    runtime.signal_buffers.push_back({.dtype = DType::kU8, .shape = {0}, .device = device});
  }
  runtime.signal_buffers[0] = tensors.Make(DType::kU8, {4096}, runtime.devices[0]);
  Register();
  auto made = MakeDecoderBatchProcessor(registration, config, runtime);
  EXPECT_TRUE(made.has_value()) << made.error().message;
  processor = std::move(made).value();
  std::vector<InputTensor> blocks;
  for (DeviceRef device : runtime.devices) {
    blocks.push_back({.dtype = DType::kU8, .shape = {50, 0}, .device = device});
  }
  blocks[0] = tensors.Make(DType::kU8, {50, 128}, runtime.devices[0]);
  kv = std::make_unique<KvCacheInputBuilder>(KvCacheInputBuilder::Create(runtime, blocks).value());
  store =
      std::make_unique<TargetStore>(runtime.MaxStepTokens(), runtime.GlobalBatchSize(), runtime.devices[0]);
  processor->state_store = store.get();
  if (every_field_) Bring();
}

inline void Deployment::Register() {
  registration.name = "test";
  registration.state.Add("targets",
                         {.dtype = DType::kI64, .shape = {"total_seq_len"}, .device = runtime.devices[0]});
  registration.state.Add("requests", {.dtype = DType::kU32, .shape = {"requests"}});
  if (!every_field_) return;
  const auto local = [this](DType dtype, std::vector<Dim> shape) {
    return InputSpec{dtype, std::move(shape), runtime.devices[0], Residence::kRankLocal};
  };
  registration.has_vision = true;
  registration.vision_hidden = 8;
  registration.scratch_types = {{"attention", DType::kF32, {"total_seq_len", 4}}, {"mlp", DType::kF32, {16}}};
  registration.ep.Add("counters/0", local(DType::kI32, {8}));
  registration.lora = {{DType::kI32, {"lora_groups"}, runtime.devices[0]},
                       {DType::kU32, {"lora_group_offsets_len"}, runtime.devices[0]},
                       {DType::kI64, {"lora_rows"}, DeviceRef::Host()},
                       local(DType::kF32, {4, 2})};
  registration.constants.Add("rope/cos", local(DType::kF32, {200, 4}));
  registration.constants.Add("rope/sin", local(DType::kF32, {200, 4}));
  registration.stage_boundary.Add("h", local(DType::kF32, {"total_seq_len", 8}));
}

inline void Deployment::Bring() {
  const DeviceRef first = runtime.devices[0];
  InputTree<InputTensor> held;
  held.Add("rope/cos", tensors.Make(DType::kF32, {200, 4}, first));
  held.Add("rope/sin", tensors.Make(DType::kF32, {200, 4}, first));
  constants = std::make_unique<ConstantInputs>(std::move(held), nullptr);
  const InputTree<InputSpec> types = ScratchTypes(registration, runtime.devices);
  const std::vector<std::string> dims = {"total_seq_len"};
  const DimSizes sizes = processor->max_dims(dims, runtime.kv_params).value();
  scratch = std::make_unique<DecoderScratch>(
      DecoderScratch::Allocate(types, std::span(runtime.devices).first(1), sizes).value());
  exchange.inputs.Add("counters/0", tensors.Make(DType::kI32, {8}, first));
  for (DeviceRef device : runtime.devices) {
    vision.embeddings.push_back(tensors.Make(DType::kF32, {0, 8}, device));
    vision.indices.push_back(tensors.Make(DType::kI32, {0}, device));
  }
  lora = {tensors.Make(DType::kI32, {1}, first), tensors.Make(DType::kU32, {2}, first),
          tensors.Make(DType::kI64, {1}, DeviceRef::Host()), tensors.Make(DType::kF32, {4, 2}, first)};
  boundary.Add("h", tensors.Make(DType::kF32, {runtime.MaxStepTokens(), 8}, first));
  processor->constant_inputs = constants.get();
  processor->scratch = scratch.get();
  processor->bind_ep_comm_initializer(&exchange);
  brought = {.vision = &vision, .lora = lora, .stage_boundary = &boundary};
}

inline std::vector<ReplicaBatch> Deployment::RandomBatches(std::mt19937& random, int64_t least_active) {
  const auto below = [&random](int64_t n) { return static_cast<int64_t>(random() % n); };
  contexts_.assign(runtime.data_parallel_degree, {});
  tokens_.clear();
  pages_.clear();
  uint32_t page = 1;
  for (auto& replica : contexts_) {
    const int64_t sequences = below(4) == 0 ? 0 : below(runtime.max_batch_size + 1);
    for (int64_t i = 0; i < sequences; ++i) {
      const int64_t active = least_active + below(40), processed = below(200 - active - 20);
      auto& tokens = tokens_.emplace_back(processed + active + below(20));
      for (int32_t& token : tokens) token = static_cast<int32_t>(below(config.vocab));
      auto& pages = pages_.emplace_back(runtime.kv_params.PagesFor(processed + active) + below(2));
      for (uint32_t& id : pages) id = page++ % 49 + 1;
      replica.push_back({.request = static_cast<uint64_t>(below(1000)),
                         .tokens = tokens,
                         .processed_length = processed,
                         .active_length = active,
                         .pages = pages});
    }
  }
  return {contexts_.begin(), contexts_.end()};
}

inline Result<const DecoderInputs<InputTensor>*> Deployment::Prepare(std::span<const ReplicaBatch> batches,
                                                                     int64_t n) {
  ASSIGN_OR_RETURN(const KvCacheInputs* inputs, kv->Build(batches));
  if (every_field_) {
    int64_t tokens = 0;
    for (ReplicaBatch batch : batches) {
      for (const TextContext& context : batch) tokens += context.active_length;
    }
    boundary.leaves[0].value.shape = {tokens, 8};
  }
  return processor->prepare_initial_token_inputs(batches, inputs, n, brought);
}

}  // namespace plumbline

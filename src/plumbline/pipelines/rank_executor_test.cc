// Steps as the executors of all ranks run them. Dummy sequences that fill short replicas change no real row's
// result, and their keys go nowhere; nor does what a decoder declares beside what it must take.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <optional>

#include "plumbline/comm/local/local_group.h"
#include "plumbline/models/load_decoder.h"
#include "plumbline/nn/rank_groups.h"
#include "plumbline/pipelines/contract/decoder_message.h"
#include "plumbline/pipelines/contract/replica_padder.h"
#include "plumbline/pipelines/declared_step.h"
#include "plumbline/pipelines/engine_test_util.h"
#include "plumbline/pipelines/step_state.h"

namespace plumbline {
namespace {

constexpr ExecutorOptions kOptions = {.max_rows = 64,
                                      .max_sequences = 5,
                                      .max_sequence_length = 64,
                                      .total_pages = 12,
                                      .hidden_states = ReturnHiddenStates::kAll};

// Sequences of which `prompts[i]` are the tokens; each has one page.
struct Placed {
  Request request;
  Sequence sequence;
};

std::vector<Placed> Place(std::span<const int> replicas) {
  std::vector<Placed> placed(replicas.size());
  for (size_t i = 0; i < placed.size(); ++i) {
    Placed& p = placed[i];
    p.request = {.tokens = SomeTokens(4 + static_cast<int64_t>(i), static_cast<int64_t>(i)),
                 .max_logits = true,
                 .max_new_tokens = 8};
    p.sequence.index = i;
    p.sequence.request = &p.request;
    p.sequence.result.tokens = p.request.tokens;
    p.sequence.result.prompt_tokens = std::ssize(p.request.tokens);
    p.sequence.pages = {static_cast<uint32_t>(2 * (1 + i))};  // even: of the first context-parallel rank
    p.sequence.replica = replicas[i];
    p.sequence.slot = 1 + static_cast<uint32_t>(i);
  }
  return placed;
}

// The controller's part: packs steps of `placed`, replica after replica.
class Packer {
 public:
  Packer(const DecoderConfig& config, const ParallelDegrees& degrees, RankExecutor& executor)
      : state_(degrees.dp, kOptions.max_sequences, config.declares.state, degrees.Ranks()),
        step_(DeclareStep({.config = config,
                           .degrees = degrees,
                           .options = kOptions,
                           .layers = {},
                           .state = state_.state_inputs(),
                           .signals = executor.tensors().signals(),
                           .packs = true})
                  .value()),
        kv_(KvCacheInputBuilder::Create(step_.runtime, step_.KvBlocks(executor.KvBlocks())).value()),
        padder_(step_.runtime, 1),
        contexts_(degrees.dp) {
    const DecoderInputs<InputSpec>& declared = *step_.processor->declared();
    const RankTensors& tensors = executor.tensors();
    step_.processor->state_store = &state_;
    state_.BindPools(tensors.state());
    step_.processor->constant_inputs = tensors.constants();
    if (declared.scratch) step_.processor->scratch = &tensors.scratch();
    if (!declared.vision) return;
    for (size_t i = 0; i < declared.vision->embeddings.size(); ++i) {
      const DeviceRef device = DeviceRef::Rank(static_cast<int>(i));
      vision_.embeddings.push_back({.shape = {0, 8}, .device = device});
      vision_.indices.push_back({.dtype = DType::kI32, .shape = {0}, .device = device});
    }
    brought_.vision = &vision_;
  }

  Result<std::vector<std::byte>> Pack(std::span<Placed> placed, bool prompts, bool pad) {
    std::vector<StepEntry> entries;
    for (auto& contexts : contexts_) contexts.clear();
    for (int replica = 0; replica < std::ssize(contexts_); ++replica) {
      for (Placed& p : placed) {
        Sequence& s = p.sequence;
        if (s.replica != replica) continue;
        const int64_t rows = prompts ? s.prompt_size() - 1 : 1;
        entries.push_back({&s, prompts ? RowKind::kSilent : RowKind::kSample, rows});
        contexts_[replica].push_back({.tokens = s.result.tokens,
                                      .processed_length = s.processed,
                                      .active_length = rows,
                                      .pages = s.pages});
      }
    }
    const std::vector<ReplicaBatch> batches(contexts_.begin(), contexts_.end());
    const std::span<const ReplicaBatch> padded = pad ? padder_.PadReplicas(batches) : std::span(batches);
    state_.Set(entries, {});
    std::vector<std::byte> message;
    ASSIGN_OR_RETURN(const KvCacheInputs* kv, kv_.Build(padded));
    ASSIGN_OR_RETURN(const auto* inputs,
                     step_.processor->prepare_initial_token_inputs(padded, kv, 1, brought_));
    RETURN_IF_ERROR(plumbline::Pack(*inputs, *step_.processor->declared(), message));
    return message;
  }

 private:
  StepState state_;
  DeclaredStep step_;
  KvCacheInputBuilder kv_;
  ReplicaPadder padder_;
  std::vector<std::vector<TextContext>> contexts_;
  VisionInputs<InputTensor> vision_;
  BroughtInputs brought_;
};

// What rank 0 saw of a run: per step the logits of the sampled rows, hidden states and maxima of the real
// sequences.
using Seen = std::vector<std::vector<float>>;

class RankExecutorTest : public testing::Test {
 protected:
  // A prompt step, then three decode steps.
  Status Run(Communicator& world, const ParallelDegrees& degrees, std::span<const int> replicas, bool pad,
             const std::function<void(Decoder&)>& declare, Seen& seen) {
    ThreadPool pool(2);
    ASSIGN_OR_RETURN(const auto checkpoint,
                     Checkpoint::Open(std::string(PLUMBLINE_SOURCE_DIR) + "/tests/golden/models/llama3"));
    ASSIGN_OR_RETURN(Decoder loaded, LoadDecoder({pool, SupportedIsas().back()}, *checkpoint,
                                                 {.degrees = degrees, .rank = world.rank()}, nullptr));
    if (declare) declare(loaded);
    const auto decoder = std::make_shared<const Decoder>(std::move(loaded));
    ASSIGN_OR_RETURN(const RankGroups groups, RankGroups::Split(world, decoder->shard));
    const RankContext rank = groups.Context({pool, SupportedIsas().back()});
    ASSIGN_OR_RETURN(const auto executor, RankExecutor::Create(rank, decoder, kOptions, {}));
    std::optional<Packer> packer;  // of the controller
    if (world.rank() == 0) packer.emplace(decoder->config, degrees, *executor);
    std::vector<Placed> placed = Place(replicas);
    for (int step = 0; step < 4; ++step) {
      std::vector<std::byte> message;
      if (packer) {
        ASSIGN_OR_RETURN(message, packer->Pack(placed, /*prompts=*/step == 0, pad));
      }
      int64_t bytes = std::ssize(message);
      RETURN_IF_ERROR(world.Broadcast(std::as_writable_bytes(std::span(&bytes, 1)), 0));
      message.resize(bytes);
      RETURN_IF_ERROR(world.Broadcast(message, 0));
      ASSIGN_OR_RETURN(const ModelOutputs* out, executor->Execute(message));
      if (world.rank() == 0) Keep(*out, placed, decoder->config, step, seen);
      for (Placed& p : placed) {
        p.sequence.processed += step == 0 ? p.sequence.prompt_size() - 1 : 1;
        if (step > 0) p.sequence.result.tokens.push_back(static_cast<int32_t>(7 * step + p.sequence.index));
      }
    }
    const auto* null_page = static_cast<const std::byte*>(executor->KvBlocks().data);
    const int64_t page_bytes = executor->KvBlocks().shape[1];
    EXPECT_TRUE(
        std::all_of(null_page, null_page + page_bytes, [](std::byte b) { return b == std::byte{0}; }));
    return {};
  }

 private:
  static void Keep(const ModelOutputs& out, std::span<const Placed> placed, const DecoderConfig& config,
                   int step, Seen& seen) {
    std::vector<float>& values = seen.emplace_back();
    EXPECT_EQ(out.next_token_logits->shape[0], step == 0 ? 0 : std::ssize(placed));
    const auto keep = [&values](const InputTensor& tensor) {
      const auto floats = tensor.As<const float>();
      values.insert(values.end(), floats.begin(), floats.end());
    };
    keep(*out.next_token_logits);
    for (const auto& states : out.hidden_states.leaves) {
      if (states.path.starts_with("sampled/")) keep(states.value);
    }
    const std::span<const float> max_logits = MaxLogitsOf(out);
    // Sequences lie replica after replica, each replica's padding behind its own.
    const int64_t all = std::ssize(max_logits) / (config.layers * config.heads);
    std::map<int, int64_t> counts;
    for (const Placed& p : placed) ++counts[p.sequence.replica];
    const int64_t longest =
        counts.empty() ? 0
                       : std::ranges::max_element(counts, {}, &std::pair<const int, int64_t>::second)->second;
    const bool padded = all != std::ssize(placed);
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      int64_t begin = 0;
      for (const auto& [replica, count] : counts) {
        const float* from =
            max_logits.data() + (layer * all + (padded ? replica * longest : begin)) * config.heads;
        values.insert(values.end(), from, from + count * config.heads);
        begin += count;
      }
    }
  }
};

TEST_F(RankExecutorTest, DummyRowsNeverChangeRealOnes) {
  const std::vector<int> uneven = {0, 0, 1, 0}, one_empty = {1, 1}, even = {0, 1};
  for (const ParallelDegrees& degrees :
       {ParallelDegrees{.dp = 2}, {.tp = 2, .dp = 2}, {.dp = 2, .cp = 2}, {.dp = 2, .pp = 2}}) {
    for (const std::vector<int>& replicas : {uneven, one_empty, even}) {
      Seen plain, padded;
      for (const bool pad : {false, true}) {
        const Status status = RunRanks(degrees.Ranks(), [&](Communicator& world) {
          return Run(world, degrees, replicas, pad, {}, pad ? padded : plain);
        });
        ASSERT_TRUE(status.has_value()) << status.error().message;
      }
      ASSERT_EQ(plain.size(), 4u);
      for (size_t step = 0; step < 4; ++step) {
        ASSERT_EQ(padded[step].size(), plain[step].size()) << step;
        EXPECT_EQ(std::memcmp(padded[step].data(), plain[step].data(), plain[step].size() * sizeof(float)), 0)
            << "step " << step << ", " << replicas.size() << " sequences";
      }
    }
  }
}

TEST_F(RankExecutorTest, WhatADecoderDeclaresIsFilledAndChangesNoBit) {
  const std::vector<int> replicas = {0, 0, 1};
  const auto nothing = [](Decoder& d) { d.config.declares.takes_token_positions = false; };
  const auto host = [](Decoder& d) { d.config.declares.takes_batch_context_lengths = true; };
  const auto all = [](Decoder& d) {
    DecoderDeclaration& declares = d.config.declares;
    declares.roles = {Role::kDecoder, Role::kVision};
    declares.vision_hidden = 8;
    declares.takes_host_inputs = true;
    declares.takes_batch_context_lengths = true;
    declares.device_context_length_dtype = DType::kI64;
    declares.signals = {{.bytes = 640}};
    declares.scratch = {{.name = "routed", .dtype = DType::kI32, .per_token = 8}};
    declares.constants.push_back({.name = "table", .shape = {3}});
    d.constants.push_back({1, 2, 3});
    declares.state = {{.name = "recurrent", .shape = {2, 3}}, {.name = "count", .dtype = DType::kI64}};
  };
  const ParallelDegrees degrees{.dp = 2};
  Seen want;
  for (const std::function<void(Decoder&)>& declare :
       {std::function<void(Decoder&)>(), {nothing}, {host}, {all}}) {
    Seen seen;
    const Status status = RunRanks(degrees.Ranks(), [&](Communicator& world) {
      return Run(world, degrees, replicas, /*pad=*/true, declare, seen);
    });
    ASSERT_TRUE(status.has_value()) << status.error().message;
    if (want.empty()) want = seen;
    EXPECT_EQ(seen, want);
  }
}

DecoderConfig SmallConfig() {
  return {.architecture = "test",
          .hidden = 8,
          .layers = 4,
          .heads = 2,
          .kv_heads = 2,
          .head_dim = 4,
          .intermediate = 8,
          .vocab = 100};
}

// The inputs of a rank, without those that every decoder has.
std::string Declared(const DeclaredStep& step) {
  std::string list;
  for (const auto& leaf : ToTree(*step.processor->declared()).leaves) {
    if (!leaf.path.starts_with("kv/") && !leaf.path.starts_with("state/")) list += leaf.path + " ";
  }
  return list;
}

// The paths of the inputs that a declaration adds.
TEST(DeclaredStepTest, IsWhatTheConfigurationDeclares) {
  DecoderConfig config = SmallConfig();
  const ParallelDegrees degrees{.tp = 2};
  const auto declare = [&] {
    const StepState state(1, kOptions.max_sequences, config.declares.state, degrees.Ranks());
    return DeclareStep({.config = config,
                        .degrees = degrees,
                        .options = kOptions,
                        .layers = {},
                        .state = state.state_inputs(),
                        .rank = 1})
        .value();
  };
  EXPECT_EQ(Declared(declare()), "tokens input_row_offsets token_positions return_n_logits ");
  config.declares = {.takes_token_positions = false,
                     .takes_batch_context_lengths = true,
                     .signals = {{.bytes = 96}},
                     .scratch = {{.name = "routed", .per_token = 3}},
                     .constants = {{.name = "rope/table", .shape = {2}}},
                     .state = {{.name = "recurrent", .shape = {4}}}};
  EXPECT_EQ(Declared(declare()),
            "tokens input_row_offsets return_n_logits signals/0 signals/1 batch_context_lengths/0 "
            "constants/device0/rope/table constants/device1/rope/table scratch/device0/routed "
            "scratch/device1/routed ");
  const DeclaredStep step = declare();
  Decoder decoder{.config = config, .constants = {{0.5f, 0.25f}}};
  const RankTensors tensors =
      RankTensors::Make(std::make_shared<const Decoder>(std::move(decoder)), step).value();
  const auto& scratch = tensors.scratch().inputs().leaves;
  ASSERT_EQ(scratch.size(), 2u);
  EXPECT_EQ(scratch[0].value.data, nullptr);  // another rank's
  EXPECT_NE(scratch[1].value.data, nullptr);
  EXPECT_EQ(scratch[1].value.shape, InputShape({step.runtime.MaxStepTokens(), 3}));
  ASSERT_EQ(tensors.signals().size(), 2u);
  EXPECT_EQ(tensors.signals()[0].data, nullptr);
  EXPECT_EQ(tensors.signals()[1].data, tensors.Views({}).signals.data());
  EXPECT_EQ(tensors.Views({}).signals.size(), 96u);
  const auto& constants = tensors.constants()->inputs().leaves;
  EXPECT_EQ(constants[0].value.data, nullptr);
  EXPECT_EQ(constants[1].value.As<const float>()[1], 0.25f);
  EXPECT_EQ(tensors.Views({}).Constant(config.declares, "rope/table").size(), 2u);
  config.declares.signals->bytes = 0;
  EXPECT_EQ(
      DeclareStep({.config = config, .degrees = degrees, .options = kOptions, .layers = {}, .state = {}})
          .error()
          .message,
      "signals: got 0 bytes, want 1 or more (test)");
  config.declares.roles = {Role::kVision};
  EXPECT_EQ(
      DeclareStep({.config = config, .degrees = degrees, .options = kOptions, .layers = {}, .state = {}})
          .error()
          .message,
      "roles: got no decoder, want one (test)");
}

// Every stage after the first takes what the stage before it gives; the controller packs it for none.
TEST(DeclaredStepTest, AStageTakesTheBoundaryThatTheStageBeforeGives) {
  const DecoderConfig config = SmallConfig();
  const ParallelDegrees degrees{.tp = 2, .pp = 2};
  const std::vector<int32_t> layers = {0, 1, 3};
  const StepState state(1, kOptions.max_sequences);
  for (int rank = 0; rank < degrees.Ranks(); ++rank) {
    const auto declare = [&](bool packs) {
      return DeclareStep({.config = config,
                          .degrees = degrees,
                          .options = kOptions,
                          .layers = layers,
                          .state = state.state_inputs(),
                          .rank = rank,
                          .packs = packs})
          .value();
    };
    const DeclaredStep step = declare(false);
    const bool first = ShardOf(config, degrees, rank).FirstStage();
    EXPECT_FALSE(declare(true).processor->declared()->stage_boundary.has_value());
    ASSERT_EQ(step.processor->declared()->stage_boundary.has_value(), !first);
    EXPECT_EQ(step.runtime.is_last_stage, !first);
    if (first) continue;
    std::string types;
    for (const auto& leaf : step.processor->declared()->stage_boundary->leaves)
      types += fmt::format("{} {}; ", leaf.path, ToString(leaf.value));
    EXPECT_EQ(types, fmt::format("hidden f32 [stage_rows, 8] on rank {0}; "
                                 "captured/layer0 f32 [stage_rows, 8] on rank {0}; "
                                 "captured/layer1 f32 [stage_rows, 8] on rank {0}; "
                                 "max_logits f32 [2, stage_sequences, 1] on rank {0}; ",
                                 rank));
  }
}

}  // namespace
}  // namespace plumbline

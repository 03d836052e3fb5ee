#include "plumbline/pipelines/contract/decoder_inputs.h"

#include <gtest/gtest.h>

#include <set>

namespace plumbline {
namespace {

constexpr int kOptional = 12;  // every field but tokens, input_row_offsets, return_n_logits and kv

template <typename T>
InputTree<T> Tree(std::initializer_list<const char*> paths) {
  InputTree<T> tree;
  for (const char* path : paths) tree.Add(path, T{});
  return tree;
}

// The record whose optional fields are those of the bits of `subset`, with different leaf counts a field.
template <typename T, typename S = T>
DecoderInputs<T, S> Subset(unsigned subset) {
  DecoderInputs<T, S> inputs;
  inputs.kv = Tree<T>({"replica0/kv_blocks/0", "replica0/cache_lengths", "replica1/kv_blocks/0"});
  if (subset & 1) inputs.vision = {.embeddings = std::vector<T>(2), .indices = std::vector<T>(2)};
  if (subset & 2) inputs.token_positions.emplace();
  if (subset & 4) inputs.host_input_row_offsets.emplace();
  if (subset & 8) inputs.data_parallel_splits.emplace();
  if (subset & 16) inputs.signals.emplace(3);
  if (subset & 32) inputs.batch_context_lengths.emplace(2);
  if (subset & 64) inputs.ep = Tree<T>({"counters/0", "counters/1", "send/0"});
  if (subset & 128) inputs.lora.emplace(4);
  if (subset & 256) inputs.constants = Tree<T>({"rope/cos", "rope/sin"});
  if (subset & 512) inputs.state = Tree<T>({"targets"});
  if (subset & 1024) inputs.scratch = Tree<T>({"device0/attention", "device0/mlp"});
  if (subset & 2048) inputs.stage_boundary = Tree<T>({"h", "residual"});
  return inputs;
}

TEST(DecoderInputsTest, EverySubsetOfOptionalFieldsGoesThereAndBackInCanonicalOrder) {
  for (unsigned subset = 0; subset < 1u << kOptional; ++subset) {
    auto inputs = Subset<InputTensor>(subset);
    int64_t number = 0;
    int field = 0;
    ForEachLeaf(inputs, [&](const LeafName& name, InputTensor& leaf) {
      leaf.shape = {++number};
      EXPECT_LE(field, static_cast<int>(name.field));
      field = static_cast<int>(name.field);
    });
    const std::vector<InputTensor> flat = Flatten(inputs);
    ASSERT_EQ(flat.size(), static_cast<size_t>(number));
    for (int64_t i = 0; i < number; ++i) ASSERT_EQ(flat[i].shape[0], i + 1);
    const auto back = Unflatten<InputTensor>(std::span(flat), Subset<InputSpec>(subset));
    ASSERT_TRUE(back.has_value());
    ASSERT_EQ(*back, inputs) << subset;
  }
}

TEST(DecoderInputsTest, EverySubsetGoesThroughANamedTree) {
  for (unsigned subset = 0; subset < 1u << kOptional; ++subset) {
    auto declared = Subset<InputSpec>(subset);
    int64_t number = 0;
    ForEachLeaf(declared, [&](const LeafName&, InputSpec& leaf) { leaf.shape = {++number}; });
    const InputTree<InputSpec> tree = ToTree(declared);
    ASSERT_EQ(tree.leaves.size(), Flatten(declared).size());
    const auto back = FromTree(tree);
    ASSERT_TRUE(back.has_value()) << back.error().message;
    ASSERT_EQ(*back, declared) << subset;
  }
}

struct Signal {
  int number = 0;
  friend bool operator==(const Signal&, const Signal&) = default;
};

TEST(DecoderInputsTest, SignalsOfTheirOwnTypeKeepTheirPlace) {
  using Leaf = std::variant<InputTensor, Signal>;
  auto inputs = Subset<InputTensor, Signal>(16 | 512);
  (*inputs.signals)[1].number = 7;
  std::vector<Leaf> flat = FlattenAs<Leaf>(inputs);
  const auto declared = Subset<InputSpec>(16 | 512);
  const auto back = Unflatten<InputTensor, Signal>(std::span<const Leaf>(flat), declared);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(*back, inputs);
  std::swap(flat[2], flat[3]);
  const auto swapped = Unflatten<InputTensor, Signal>(std::span<const Leaf>(flat), declared);
  ASSERT_FALSE(swapped.has_value());
  EXPECT_EQ(swapped.error().message, "return_n_logits: got a signal, want a tensor (leaf 2)");
}

TEST(DecoderInputsTest, AnotherNumberOfLeavesIsRefused) {
  const auto flat = Flatten(Subset<InputTensor>(4095));
  for (size_t size : {size_t{0}, flat.size() - 1}) {
    const auto back = Unflatten<InputTensor>(std::span(flat).first(size), Subset<InputSpec>(4095));
    ASSERT_FALSE(back.has_value());
    EXPECT_EQ(back.error().message,
              fmt::format("decoder inputs: got {} leaves, want {} (the declared fields)", size, flat.size()));
  }
  EXPECT_FALSE(Unflatten<InputTensor>(std::span(flat), Subset<InputSpec>(4094)).has_value());
}

std::string FaultOf(std::initializer_list<const char*> paths) {
  const auto inputs = FromTree(Tree<InputSpec>(paths));
  return inputs.has_value() ? "" : inputs.error().message;
}

TEST(DecoderInputsTest, TreesThatAreNoDecodersInputsAreRefused) {
  EXPECT_EQ(FaultOf({"tokens", "input_row_offsets", "return_n_logits"}), "");
  EXPECT_EQ(FaultOf({"tokens", "input_row_offsets"}),
            "input tree: got no return_n_logits, want it in every decoder's inputs (bind_input_tree)");
  EXPECT_EQ(FaultOf({"token"}),
            "input tree: got leaf token, want one of the decoder's fields (bind_input_tree)");
  EXPECT_EQ(FaultOf({"input_row_offsets", "tokens"}),
            "input tree: got tokens after input_row_offsets, want the canonical order (bind_input_tree)");
  EXPECT_EQ(FaultOf({"tokens", "tokens"}),
            "input tree: got leaf tokens twice, want each once (bind_input_tree)");
  EXPECT_EQ(FaultOf({"tokens/0"}),
            "input tree: got leaf tokens/0, want a field of one leaf (bind_input_tree)");
  EXPECT_EQ(FaultOf({"signals/1"}),
            "input tree: got leaf signals/1, want number 0 of its field (bind_input_tree)");
  EXPECT_EQ(FaultOf({"kv"}), "input tree: got leaf kv, want a field of subtrees (bind_input_tree)");
  EXPECT_EQ(FaultOf({"vision/indices/0", "vision/embeddings/0"}),
            "input tree: got leaf vision/embeddings/0, want embeddings and then indices of vision "
            "(bind_input_tree)");
}

TEST(InputTreeTest, PathsThatAreNoTreeAreRefused) {
  const auto fault = [](std::initializer_list<const char*> paths) {
    const Status status = CheckTree(Tree<int>(paths), "here");
    return status.has_value() ? "" : status.error().message;
  };
  EXPECT_EQ(fault({"a/b", "a/c/d", "a/c/e", "f"}), "");
  EXPECT_EQ(fault({"a//b"}), "input tree: got path \"a//b\", want names joined by / (here)");
  EXPECT_EQ(fault({""}), "input tree: got path \"\", want names joined by / (here)");
  EXPECT_EQ(fault({"a/b", "c", "a/d"}),
            "input tree: got leaf a/d apart from the others of a, want them together (here)");
  EXPECT_EQ(fault({"a", "a/b"}),
            "input tree: got leaf a with leaves below it, want a leaf or a subtree (here)");
  EXPECT_EQ(fault({"a/b", "a"}),
            "input tree: got leaf a with leaves below it, want a leaf or a subtree (here)");
}

TEST(DecoderInputsTest, SixteenFieldsHaveTheirOwnNames) {
  std::set<std::string_view> names;
  for (int i = 0; i < kDecoderFields; ++i) {
    const auto field = static_cast<DecoderField>(i);
    names.insert(Name(field));
    EXPECT_EQ(ParseDecoderField(Name(field)), field);
  }
  EXPECT_EQ(names.size(), 16u);
  EXPECT_EQ(ParseDecoderField("token"), std::nullopt);
}

}  // namespace
}  // namespace plumbline

#include "plumbline/pipelines/stage_boundary.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace plumbline {
namespace {

std::span<std::byte> BytesOf(const InputTensor& tensor) {
  return {static_cast<std::byte*>(tensor.data), static_cast<size_t>(tensor.Bytes())};
}

}  // namespace

StageBoundaryShape StageBoundaryAt(const DecoderConfig& config, const DecoderShard& shard,
                                   std::span<const int32_t> captured, int64_t layer) {
  const auto end = std::ranges::lower_bound(captured, layer);
  return {.layer = layer,
          .hidden = config.hidden,
          .heads = shard.heads.size(),
          .captured = {captured.begin(), end}};
}

InputTree<InputSpec> StageBoundaryTypes(const StageBoundaryShape& shape, DeviceRef device) {
  InputTree<InputSpec> types;
  const auto add = [&](std::string path, std::vector<Dim> dims) {
    types.Add(std::move(path), {.dtype = DType::kF32,
                                .shape = std::move(dims),
                                .device = device,
                                .residence = Residence::kRankLocal});
  };
  add("hidden", {"stage_rows", shape.hidden});
  for (int32_t layer : shape.captured)
    add(fmt::format("captured/layer{}", layer), {"stage_rows", shape.hidden});
  add("max_logits", {shape.layer, "stage_sequences", shape.heads});
  return types;
}

StageBoundary::StageBoundary(StageBoundaryShape shape, DeviceRef device, std::string_view prefix)
    : shape_(std::move(shape)) {
  for (const auto& leaf : StageBoundaryTypes(shape_, device).leaves)
    tree_.Add(std::string(prefix) + leaf.path, {.dtype = leaf.value.dtype, .device = device});
}

Status StageBoundary::SetSizes(int64_t rows, int64_t maxima_sequences) {
  const int64_t matrix = rows * shape_.hidden, maxima = shape_.layer * maxima_sequences * shape_.heads;
  ASSIGN_OR_RETURN(const std::span<float> floats, memory_.Get<float>((1 + captured()) * matrix + maxima));
  float* next = floats.data();
  for (auto& leaf : tree_.leaves) {
    const bool last = &leaf == &tree_.leaves.back();
    leaf.value.shape =
        last ? InputShape({shape_.layer, maxima_sequences, shape_.heads}) : InputShape({rows, shape_.hidden});
    leaf.value.data = next;
    next += matrix;
  }
  return {};
}

MatrixView<float> StageBoundary::Rows(int64_t leaf) const {
  const InputTensor& tensor = tree_.leaves[leaf].value;
  return {tensor.As<float>().data(), tensor.shape[0], tensor.shape[1]};
}

Status SendTree(Communicator& group, const InputTree<InputTensor>& tree, int to, int tag) {
  for (const auto& leaf : tree.leaves) {
    if (leaf.value.Bytes() > 0) RETURN_IF_ERROR(group.Send(BytesOf(leaf.value), to, tag));
  }
  return {};
}

Status ReceiveTree(Communicator& group, const InputTree<InputTensor>& tree, int from, int tag) {
  for (const auto& leaf : tree.leaves) {
    if (leaf.value.Bytes() > 0) RETURN_IF_ERROR(group.Receive(BytesOf(leaf.value), from, tag));
  }
  return {};
}

}  // namespace plumbline

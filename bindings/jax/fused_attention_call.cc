#include "bindings/jax/fused_attention_call.h"

#include <algorithm>
#include <optional>

namespace plumbline {
namespace {

namespace ffi = xla::ffi;

constexpr size_t kForwardOperands = 11, kBackwardOperands = 14;

std::optional<DType> DTypeOf(ffi::DataType type) {
  if (type == ffi::DataType::F32) return DType::kF32;
  if (type == ffi::DataType::BF16) return DType::kBF16;
  if (type == ffi::DataType::F16) return DType::kF16;
  return std::nullopt;
}

template <typename T>
Status Get(ffi::Dictionary attributes, const char* name, T* value) {
  const auto got = attributes.get<T>(name);
  if (!got.has_value()) return InvalidInput("attribute {}: got {}", name, got.error().message());
  *value = got.value();
  return {};
}

}  // namespace

Result<FusedAttentionCall> FusedAttentionCall::Read(ffi::RemainingArgs arguments,
                                                    ffi::Dictionary attributes) {
  FusedAttentionCall call;
  if (arguments.size() != kForwardOperands && arguments.size() != kBackwardOperands) {
    return InvalidInput("operands: got {}, want {} or {}", arguments.size(), kForwardOperands,
                        kBackwardOperands);
  }
  for (size_t n = 0; n < arguments.size(); ++n) {
    const auto buffer = arguments.get<ffi::AnyBuffer>(n);
    if (!buffer.has_value()) return InvalidInput("operand {}: got {}", n, buffer.error().message());
    call.buffers_.push_back(buffer.value());
  }
  RETURN_IF_ERROR(call.ReadShape());
  RETURN_IF_ERROR(call.ReadAttributes(attributes));
  return call;
}

Status FusedAttentionCall::ReadShape() {
  const auto q = Buffer(FfiOperand::kQ).dimensions(), k = Buffer(FfiOperand::kK).dimensions();
  const auto v = Buffer(FfiOperand::kV).dimensions();
  const std::optional<DType> dtype = DTypeOf(Buffer(FfiOperand::kQ).element_type());
  if (!dtype.has_value()) return InvalidInput("dtype of q: want float32, bfloat16 or float16");
  if (q.size() < 5 || q.size() > 6 || k.size() < q.size() || k.size() > 6 || v.size() != k.size()) {
    return InvalidInput("ranks of q, k and v: got {}, {} and {}, want 5, or 6 where packed", q.size(),
                        k.size(), v.size());
  }
  packed_ = q.size() == 6 ? 3 : k.size() == 6 ? 2 : 1;
  shape_ = {.dtype = *dtype,
            .batch = q[1],
            .q_tokens = q[2],
            .kv_tokens = k[2],
            .heads = q[q.size() - 2],
            .kv_heads = k[k.size() - 2],
            .qk_dim = q[q.size() - 1],
            .v_dim = v[v.size() - 1]};
  for (const ffi::AnyBuffer& buffer : buffers_) groups_ = std::max(groups_, buffer.dimensions()[0]);
  if (q[0] == 0) groups_ = 0;
  const auto bias = Buffer(FfiOperand::kBias).dimensions();
  if (bias.size() == 5) {
    options_.bias_batch = bias[1];
    options_.bias_heads = bias[2];
  }
  return {};
}

Status FusedAttentionCall::ReadAttributes(ffi::Dictionary attributes) {
  int64_t bias_type = 0, softmax = 0;
  RETURN_IF_ERROR(Get(attributes, "scale", &options_.scale));
  RETURN_IF_ERROR(Get(attributes, "dropout", &options_.dropout.probability));
  RETURN_IF_ERROR(Get(attributes, "causal", &options_.causal));
  RETURN_IF_ERROR(Get(attributes, "bottom_right", &bottom_right_));
  RETURN_IF_ERROR(Get(attributes, "left", &options_.left));
  RETURN_IF_ERROR(Get(attributes, "right", &options_.right));
  RETURN_IF_ERROR(Get(attributes, "bias_type", &bias_type));
  RETURN_IF_ERROR(Get(attributes, "softmax", &softmax));
  RETURN_IF_ERROR(Get(attributes, "float32_results", &options_.float32_results));
  RETURN_IF_ERROR(Get(attributes, "max_segments", &max_segments_));
  if (bias_type < 0 || bias_type > 2 || softmax < 0 || softmax > 2) {
    return InvalidInput("bias type and softmax: got {} and {}, want 0 to 2", bias_type, softmax);
  }
  options_.bias_type = static_cast<FusedBias>(bias_type);
  options_.softmax = static_cast<FusedSoftmax>(softmax);
  return {};
}

const void* FusedAttentionCall::Data(FfiOperand which, int64_t group) const {
  const ffi::AnyBuffer& buffer = Buffer(which);
  if (buffer.element_count() == 0) return nullptr;
  const int64_t bytes = buffer.dimensions()[0] == 1 ? 0 : buffer.size_bytes() / buffer.dimensions()[0];
  return static_cast<const char*>(buffer.untyped_data()) + group * bytes;
}

FusedAttentionOptions FusedAttentionCall::Options(int64_t group) const {
  FusedAttentionOptions options = options_;
  const auto* seed = static_cast<const uint32_t*>(Data(FfiOperand::kSeed, group));
  const auto* origin = static_cast<const int32_t*>(Data(FfiOperand::kOrigin, group));
  std::copy_n(seed, 2, options.dropout.seed);
  options.dropout.batch_offset = origin[0];
  options.dropout.head_offset = origin[1];
  return options;
}

FusedOperand<const void> FusedAttentionCall::Dense(FfiOperand which, int64_t group, int64_t tokens,
                                                   int64_t heads, int64_t dim) const {
  return {Data(which, group), tokens * heads * dim, heads * dim, dim};
}

FusedOperand<const void> FusedAttentionCall::Projection(FfiOperand which, int64_t group) const {
  const auto dims = Buffer(which).dimensions();
  const int64_t heads = dims[dims.size() - 2], dim = dims[dims.size() - 1];
  FusedOperand<const void> operand = Dense(which, group, dims[2], heads, dim);
  if (dims.size() < 6) return operand;
  const int64_t members = dims[3], member = static_cast<int64_t>(which) - (members == 2 ? 1 : 0);
  if (operand.data != nullptr) {
    operand.data =
        static_cast<const char*>(operand.data) + ByteSize(shape_.dtype, member * operand.token_stride);
  }
  operand.token_stride *= members;
  operand.batch_stride *= members;
  return operand;
}

Status FusedAttentionCall::CheckSegments(const int32_t* segments, int64_t tokens) const {
  std::vector<int32_t> seen;
  for (int64_t b = 0; b < shape_.batch; ++b) {
    seen.assign(segments + b * tokens, segments + (b + 1) * tokens);
    std::erase(seen, 0);
    std::ranges::sort(seen);
    if (!seen.empty() && seen.front() < 0) {
      return InvalidInput(
          "segments of a row: got {}, want none below 0, lengths and offsets without overlap inside "
          "the row (batch row {})",
          seen.front(), b);
    }
    const auto repeated = std::ranges::unique(seen);
    const int64_t count = repeated.begin() - seen.begin();
    if (count > max_segments_) {
      return InvalidInput("segments of a row: got {}, want at most max_segments_per_seq = {} (batch row {})",
                          count, max_segments_, b);
    }
  }
  return {};
}

Result<FusedAttentionInputs> FusedAttentionCall::Inputs(int64_t group, FusedTokenPair* tokens) const {
  const auto ids = [&](FfiOperand which) { return static_cast<const int32_t*>(Data(which, group)); };
  FusedAttentionInputs inputs = {
      .q = Projection(FfiOperand::kQ, group),
      .k = Projection(FfiOperand::kK, group),
      .v = Projection(FfiOperand::kV, group),
      .q_ids = {ids(FfiOperand::kQSegments), ids(FfiOperand::kQPositions)},
      .kv_ids = {ids(FfiOperand::kKvSegments), ids(FfiOperand::kKvPositions)},
      .bias = Data(FfiOperand::kBias, group),
      .sink = Floats(FfiOperand::kSink, group),
  };
  if (max_segments_ > 0 && inputs.q_ids.segments != nullptr) {
    RETURN_IF_ERROR(CheckSegments(inputs.q_ids.segments, shape_.q_tokens));
  }
  if (max_segments_ > 0 && inputs.kv_ids.segments != nullptr) {
    RETURN_IF_ERROR(CheckSegments(inputs.kv_ids.segments, shape_.kv_tokens));
  }
  if (!bottom_right_) return inputs;
  const auto fill = [this](const FusedTokenIds& from, int64_t side_tokens, FusedTokens* to) {
    *to = AllTokens(shape_.batch, side_tokens);
    if (from.segments != nullptr) std::copy_n(from.segments, to->segments.size(), to->segments.begin());
    if (from.positions != nullptr) std::copy_n(from.positions, to->positions.size(), to->positions.begin());
  };
  fill(inputs.q_ids, shape_.q_tokens, &tokens->q);
  fill(inputs.kv_ids, shape_.kv_tokens, &tokens->kv);
  AlignBottomRight(shape_.batch, &tokens->q, tokens->kv);
  inputs.q_ids = tokens->q.Ids();
  inputs.kv_ids = tokens->kv.Ids();
  return inputs;
}

FusedOperand<void> DenseResult(void* data, DType dtype, const FusedAttentionShape& shape, int64_t group,
                               int64_t tokens, int64_t members, int64_t member, int64_t heads, int64_t dim) {
  const int64_t row = heads * dim, before = group * shape.batch * tokens * members * row + member * row;
  if (data != nullptr) data = static_cast<char*>(data) + ByteSize(dtype, before);
  return {data, tokens * members * row, members * row, dim};
}

}  // namespace plumbline

#include "plumbline/kernels/fused_attention/fused_work.h"

#include <chrono>

#include "plumbline/kernels/fused_attention/fused_dropout.h"
#include "plumbline/kernels/limits/limits_kernels.h"

namespace plumbline {
namespace {

FusedType TypeOf(DType dtype) {
  if (dtype == DType::kF32) return FusedType::kF32;
  return dtype == DType::kBF16 ? FusedType::kBf16 : FusedType::kF16;
}

int64_t SizeOf(FusedType type) { return type == FusedType::kF32 ? 4 : 2; }

FusedCall CallOf(const FusedAttentionShape& shape, const FusedAttentionOptions& options) {
  const int64_t even = shape.dtype == DType::kBF16 ? 2 : 1;
  const float probability = options.dropout.probability;
  FusedCall call = {};
  call.type = TypeOf(shape.dtype);
  call.result_type = options.float32_results ? FusedType::kF32 : call.type;
  call.qk_dim = shape.qk_dim;
  call.v_dim = shape.v_dim;
  call.qk_steps = (shape.qk_dim + even - 1) / even * even;
  call.v_steps = (shape.v_dim + even - 1) / even * even;
  call.qk_width = RoundUp16(shape.qk_dim);
  call.v_width = RoundUp16(shape.v_dim);
  call.scale = options.scale;
  call.bias = static_cast<int32_t>(options.bias_type);
  call.kv_tokens = shape.kv_tokens;
  call.dropout = probability > 0.0f;
  call.threshold = FusedDropoutThreshold(probability);
  call.seed[0] = options.dropout.seed[0];
  call.seed[1] = options.dropout.seed[1];
  call.keep_scale = FusedKeepScale(probability);
  return call;
}

double Seconds(float (*loop)(int64_t)) {
  const auto begin = std::chrono::steady_clock::now();
  volatile float keep = loop(1000);
  static_cast<void>(keep);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// A property of the machine, looked at once: the best of short loops of each instruction, in turns, so that
// what disturbs one disturbs the other. Either gives the same bits.
bool PairsAreFaster() {
  static const bool faster = [] {
    const LimitsKernels& kernels = isa_avx512_bf16::kLimitsKernels;
    double pairs = 1.0, floats = 1.0;
    for (int i = 0; i < 25; ++i) {
      pairs = std::min(pairs, Seconds(kernels.dot_bf16));
      floats = std::min(floats, Seconds(kernels.multiply_add));
    }
    return pairs < 2.0 * floats;  // a vdpbf16ps does the work of two multiply-adds
  }();
  return faster;
}

}  // namespace

const FusedKernels& FusedKernelsOf(Isa isa, DType dtype, FusedProducts products, bool floats) {
  const FusedKernels* pairs =
      ForIsa(isa, isa_avx2::kFusedPairs, isa_avx512::kFusedPairs, isa_avx512_bf16::kFusedPairs);
  if (pairs != nullptr && dtype == DType::kBF16 && !floats && products != FusedProducts::kFloats) {
    if (products == FusedProducts::kPairs || PairsAreFaster()) return *pairs;
  }
  return ForIsa(isa, isa_avx2::kFusedKernels, isa_avx512::kFusedKernels, isa_avx512_bf16::kFusedKernels);
}

FusedWork::FusedWork(const KernelContext& context, const FusedAttentionShape& shape,
                     const FusedAttentionOptions& options, const FusedAttentionInputs& inputs, bool floats)
    : context(context),
      shape(shape),
      options(options),
      inputs(inputs),
      kernels(FusedKernelsOf(context.isa, shape.dtype, options.products, floats)),
      group(shape.heads / shape.kv_heads),
      call(CallOf(shape, options)),
      plan(MakeFusedTokenPlan(shape, options, inputs.q_ids, inputs.kv_ids)) {
  if (!call.dropout) return;
  for (const int32_t t : plan.row_tokens) {
    dropout_rows_.push_back(t < 0 ? 0 : FusedDropoutRow(options.dropout, t));
  }
  for (const int32_t t : plan.key_tokens) {
    dropout_columns_.push_back(t < 0 ? 0 : FusedDropoutColumn(options.dropout, t));
  }
}

FusedSource FusedWork::SourceOf(const FusedOperand<const void>& operand, int64_t b, int64_t head,
                                int64_t dim) const {
  const int64_t at = b * operand.batch_stride + head * operand.head_stride;
  return {call.type, static_cast<const char*>(operand.data) + at * SizeOf(call.type), operand.token_stride,
          dim};
}

FusedTarget FusedWork::TargetOf(const FusedOperand<void>& operand, int64_t b, int64_t head,
                                int64_t dim) const {
  const int64_t at = b * operand.batch_stride + head * operand.head_stride;
  return {call.result_type, static_cast<char*>(operand.data) + at * SizeOf(call.result_type),
          operand.token_stride, dim};
}

float FusedWork::SinkOf(int64_t h) const {
  if (options.softmax == FusedSoftmax::kLearnable) return inputs.sink[h];
  return options.softmax == FusedSoftmax::kOffByOne ? 0.0f : -std::numeric_limits<float>::infinity();
}

FusedRows FusedWork::RowsOf(int64_t b, int64_t h, int64_t slot, int32_t count) const {
  FusedRows rows = {};
  rows.rows = count;
  rows.lo = &plan.lo[slot];
  rows.hi = &plan.hi[slot];
  rows.tokens = &plan.row_tokens[slot];
  rows.dropout_rows = call.dropout ? &dropout_rows_[slot] : nullptr;
  rows.batch = static_cast<uint32_t>(options.dropout.batch_offset + b);
  rows.head = static_cast<uint32_t>(options.dropout.head_offset + h);
  if (inputs.bias == nullptr) return rows;
  const int64_t bb = options.bias_batch > 1 ? b : 0, bh = options.bias_heads > 1 ? h : 0;
  rows.bias = static_cast<const char*>(inputs.bias) +
              (bb * options.bias_heads + bh) * shape.q_tokens * shape.kv_tokens * SizeOf(call.type);
  return rows;
}

FusedKeys FusedWork::KeysOf(int64_t key_begin) const {
  FusedKeys keys = {};
  keys.tokens = plan.key_tokens.data() + 64 * key_begin;
  keys.dropout_columns = call.dropout ? dropout_columns_.data() + 64 * key_begin : nullptr;
  return keys;
}

std::vector<FusedChunk> FusedWork::Chunks(int64_t floats_of_row_block, int64_t floats_of_key_block,
                                          bool whole) const {
  constexpr int64_t kFloats = int64_t{16} << 20;
  std::vector<FusedChunk> chunks;
  int64_t floats = 0;
  for (int64_t b = 0; b < shape.batch; ++b) {
    const FusedChunk one = {b,
                            b + 1,
                            plan.batch_row_blocks[b],
                            plan.batch_row_blocks[b + 1],
                            plan.batch_key_blocks[b],
                            plan.batch_key_blocks[b + 1]};
    const int64_t more = one.rows() * floats_of_row_block + one.keys() * floats_of_key_block;
    if (chunks.empty() || (!whole && floats + more > kFloats)) {
      chunks.push_back(one);
      floats = 0;
    } else {
      chunks.back().batch_end = one.batch_end;
      chunks.back().row_end = one.row_end;
      chunks.back().key_end = one.key_end;
    }
    floats += more;
  }
  return chunks;
}

void FusedWork::ZeroPadding(const FusedChunk& chunk, const std::vector<std::vector<int32_t>>& padding,
                            const FusedOperand<void>& operand, int64_t heads, int64_t dim) const {
  const int64_t size = SizeOf(call.result_type);
  for (int64_t b = chunk.batch_begin; b < chunk.batch_end; ++b) {
    for (const int32_t token : padding[b]) {
      for (int64_t h = 0; h < heads; ++h) {
        const FusedTarget target = TargetOf(operand, b, h, dim);
        std::fill_n(target.data + token * target.stride * size, dim * size, 0);
      }
    }
  }
}

}  // namespace plumbline

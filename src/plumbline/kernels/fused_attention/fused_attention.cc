#include "plumbline/kernels/fused_attention/fused_attention.h"

#include <cmath>

#include "plumbline/base/float_env.h"
#include "plumbline/kernels/attention/thread_scratch.h"
#include "plumbline/kernels/fused_attention/fused_attention_check.h"
#include "plumbline/kernels/fused_attention/fused_work.h"

namespace plumbline {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Forward {
 public:
  Forward(FusedWork& work, const FusedAttentionOutputs& outputs) : w_(work), outputs_(outputs) {
    k_floats_ = 64 * w_.call.qk_steps;
    v_floats_ = 64 * w_.call.v_width;
  }

  Status Run() {
    static thread_local FusedMemory memory;
    const int64_t block_floats = w_.shape.kv_heads * (k_floats_ + v_floats_);
    for (int64_t n = 0; outputs_.max_logit != nullptr && n < outputs_.max_logit_groups * w_.shape.heads;
         ++n) {
      outputs_.max_logit[n] = -kInfinity;
    }
    for (const FusedChunk& chunk : w_.Chunks(0, block_floats, /*whole=*/false)) {
      ASSIGN_OR_RETURN(k_columns_, memory.Floats(chunk.keys() * block_floats));
      v_lanes_ = k_columns_ + chunk.keys() * w_.shape.kv_heads * k_floats_;
      chunk_ = chunk;
      RunChunk();
    }
    return {};
  }

 private:
  void RunChunk() {
    ThreadPool& pool = w_.context.pool;
    pool.ParallelFor(chunk_.keys() * w_.shape.kv_heads, [this](int64_t n, int) {
      Pack(chunk_.key_begin + n % chunk_.keys(), n / chunk_.keys());
    });
    max_.assign(chunk_.rows() * w_.shape.heads, -kInfinity);
    // One head after another, so that threads share its keys; late rows, which see more keys, first.
    pool.ParallelFor(chunk_.rows() * w_.shape.heads, [this](int64_t n, int) {
      Rows(chunk_.row_end - 1 - n % chunk_.rows(), n / chunk_.rows());
    });
    w_.ZeroPadding(chunk_, w_.plan.row_padding, outputs_.out, w_.shape.heads, w_.shape.v_dim);
    for (int64_t b = chunk_.batch_begin; b < chunk_.batch_end; ++b) {
      for (int64_t h = 0; h < w_.shape.heads; ++h) {
        for (const int32_t token : w_.plan.row_padding[b]) LseOf(b, h)[token] = -kInfinity;
      }
    }
    if (outputs_.max_logit != nullptr) RaiseMaxLogits();
  }

  float* LseOf(int64_t b, int64_t h) const {
    return outputs_.lse + (b * w_.shape.heads + h) * w_.shape.q_tokens;
  }
  float* KColumns(int64_t key_block, int64_t g) const {
    return k_columns_ + (g * chunk_.keys() + key_block - chunk_.key_begin) * k_floats_;
  }
  float* VLanes(int64_t key_block, int64_t g) const {
    return v_lanes_ + (g * chunk_.keys() + key_block - chunk_.key_begin) * v_floats_;
  }

  void Pack(int64_t block, int64_t g) {
    const int64_t b = w_.plan.key_blocks[block].batch;
    const int32_t* tokens = &w_.plan.key_tokens[64 * block];
    w_.kernels.pack_columns(w_.SourceOf(w_.inputs.k, b, g, w_.shape.qk_dim), tokens, KColumns(block, g),
                            w_.call.qk_steps);
    w_.kernels.pack_lanes(w_.SourceOf(w_.inputs.v, b, g, w_.shape.v_dim), tokens, VLanes(block, g),
                          w_.call.v_width);
  }

  void Rows(int64_t block, int64_t h) {
    static thread_local ThreadScratch scratch;
    const FusedRowBlock& plan = w_.plan.row_blocks[block];
    const int64_t q_floats = 64 * w_.call.qk_width, g = h / w_.group;
    float* q = scratch.Floats(q_floats + FusedForwardScratch(w_.call.v_width, plan.key_end - plan.key_begin));
    FusedRows rows = w_.RowsOf(plan.batch, h, 64 * block, plan.count);
    w_.kernels.pack_rows(w_.SourceOf(w_.inputs.q, plan.batch, h, w_.shape.qk_dim), rows.tokens, q,
                         w_.call.qk_width);
    rows.q = q;
    FusedKeys keys = w_.KeysOf(plan.key_begin);
    if (plan.key_begin < plan.key_end) {
      keys.k_columns = KColumns(plan.key_begin, g);
      keys.v_lanes = VLanes(plan.key_begin, g);
    }
    FusedForwardResult result = {.out = w_.TargetOf(outputs_.out, plan.batch, h, w_.shape.v_dim),
                                 .lse = LseOf(plan.batch, h)};
    w_.kernels.forward(w_.call, rows, keys, plan.first_block, plan.end_block, w_.SinkOf(h), q + q_floats,
                       &result);
    max_[(block - chunk_.row_begin) * w_.shape.heads + h] = result.max_logit;
  }

  void RaiseMaxLogits() {
    const int64_t heads = w_.shape.heads, run = w_.shape.batch / outputs_.max_logit_groups;
    for (int64_t block = chunk_.row_begin; block < chunk_.row_end; ++block) {
      float* to = outputs_.max_logit + w_.plan.row_blocks[block].batch / run * heads;
      for (int64_t h = 0; h < heads; ++h) {
        const float max = max_[(block - chunk_.row_begin) * heads + h];
        if (std::isnan(max) || max > to[h]) to[h] = std::isnan(to[h]) ? to[h] : max;
      }
    }
  }

  FusedWork& w_;
  const FusedAttentionOutputs& outputs_;
  int64_t k_floats_ = 0, v_floats_ = 0;  // of a block
  FusedChunk chunk_;
  float* k_columns_ = nullptr;  // [kv_heads, key blocks of the chunk, qk_steps, 64]
  float* v_lanes_ = nullptr;    // [kv_heads, key blocks of the chunk, 64, v_width]
  std::vector<float> max_;      // [row blocks of the chunk, heads]
};

}  // namespace

Status FusedAttention(const KernelContext& context, const FusedAttentionShape& shape,
                      const FusedAttentionOptions& options, const FusedAttentionInputs& inputs,
                      const FusedAttentionOutputs& outputs) {
  RETURN_IF_ERROR(CheckFusedAttention(shape, options, inputs));
  RETURN_IF_ERROR(CheckFusedOutputs(shape, outputs));
  const ScopedFloatEnv env;
  FusedWork work(context, shape, options, inputs, /*floats=*/false);
  return Forward(work, outputs).Run();
}

}  // namespace plumbline

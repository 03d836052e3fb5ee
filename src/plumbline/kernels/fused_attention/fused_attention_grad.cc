#include "plumbline/base/float_env.h"
#include "plumbline/kernels/fused_attention/fused_attention_check.h"
#include "plumbline/kernels/fused_attention/fused_backward.h"

namespace plumbline {
namespace {

// Key blocks whose sums are kept at a time, and query blocks that meet them: with heads of 128 a megabyte and
// a half of keys and sums streams past a megabyte of queries.
constexpr int64_t kKeyBlocks = 16, kRowBlocks = 8;

// Every sum has one order, whoever computes it, so there are two ways through the tiles. Where there are KV
// heads enough for all threads, one thread takes all of a head: each tile serves dK, dV and dQ, five products
// a tile. Otherwise key blocks (dK, dV) and row blocks (dQ) are dealt out: seven.
class Backward {
 public:
  Backward(FusedWork& work, const FusedAttentionSaved& saved, const FusedAttentionGrads& grads)
      : w_(work), grads_(grads), c_(work, saved), round_(work.call.type == FusedType::kBf16) {
    tiles_ = 4 * 64 * 64;
    sum_ = 64 * (w_.call.v_width + w_.call.qk_width);
    tree_ = FusedSumTree::Floats(w_.group, sum_);
  }

  Status Run() {
    static thread_local FusedMemory memory;
    std::vector<float> sink_sums(grads_.d_sink != nullptr ? w_.shape.batch * w_.shape.heads : 0);
    const bool whole = grads_.d_bias != nullptr && w_.options.bias_batch == 1;
    for (const FusedChunk& chunk : w_.Chunks(c_.RowBlockFloats(), c_.KeyBlockFloats(), whole)) {
      ASSIGN_OR_RETURN(float* const packed, memory.Floats(chunk.rows() * c_.RowBlockFloats() +
                                                          chunk.keys() * c_.KeyBlockFloats() + 16));
      c_.Pack(chunk, packed);
      RunChunk();
      if (grads_.d_bias != nullptr) FusedBiasGrad(c_, grads_.d_bias);
      if (grads_.d_sink != nullptr) FusedSinkGrad(c_, sink_sums.data());
    }
    if (w_.shape.batch == 0 && grads_.d_bias != nullptr) {
      const int64_t size = w_.call.result_type == FusedType::kF32 ? 4 : 2;
      std::fill_n(static_cast<char*>(grads_.d_bias),
                  size * w_.options.bias_heads * w_.shape.q_tokens * w_.shape.kv_tokens, 0);
    }
    for (int64_t h = 0; grads_.d_sink != nullptr && h < w_.shape.heads; ++h) SinkOf(h, sink_sums);
    return {};
  }

 private:
  const FusedChunk& chunk() const { return c_.chunk; }

  void RunChunk() {
    ThreadPool& pool = w_.context.pool;
    const int64_t threads = pool.threads(), kv_heads = w_.shape.kv_heads;
    const int64_t heads = (chunk().batch_end - chunk().batch_begin) * kv_heads;
    if (5 * ((heads + threads - 1) / threads) * threads <= 7 * heads) {
      pool.ParallelFor(heads, [&](int64_t n, int) {
        const int64_t b = chunk().batch_begin + n / kv_heads;
        const int64_t begin = w_.plan.batch_key_blocks[b], end = w_.plan.batch_key_blocks[b + 1];
        for (int64_t block = begin; block < end; block += kKeyBlocks) {
          KeyBlocks(block, std::min(block + kKeyBlocks, end), n % kv_heads, /*with_dq=*/true);
        }
      });
    } else {
      const int64_t items = chunk().keys() * kv_heads;
      pool.ParallelFor(items + chunk().rows() * w_.shape.heads, [&](int64_t n, int) {
        if (n < items) {
          const int64_t block = chunk().key_begin + n % chunk().keys();
          KeyBlocks(block, block + 1, n / chunk().keys(), /*with_dq=*/false);
        } else {
          n -= items;
          RowBlock(chunk().row_end - 1 - n % chunk().rows(), n / chunk().rows());
        }
      });
    }
    StoreDq();
    w_.ZeroPadding(chunk(), w_.plan.row_padding, grads_.dq, w_.shape.heads, w_.shape.qk_dim);
    w_.ZeroPadding(chunk(), w_.plan.key_padding, grads_.dk, kv_heads, w_.shape.qk_dim);
    w_.ZeroPadding(chunk(), w_.plan.key_padding, grads_.dv, kv_heads, w_.shape.v_dim);
  }

  static int64_t Even(int64_t n) { return n + n % 2; }

  // dK and dV of key blocks [begin, end), at most kKeyBlocks, all of one batch row. A few query blocks at a
  // time meet all of them: a head's queries do not stay in the caches, their operands and sums being several
  // times as long. Each sum still takes its terms in ascending order.
  void KeyBlocks(int64_t begin, int64_t end, int64_t g, bool with_dq) {
    static thread_local ThreadScratch scratch;
    float* const tiles = scratch.Floats(tiles_ + (end - begin) * tree_);
    std::vector<FusedSumTree> trees;
    int64_t row_begin = INT64_MAX, row_end = 0;
    for (int64_t block = begin; block < end; ++block) {
      trees.emplace_back(w_.kernels, sum_, tiles + tiles_ + (block - begin) * tree_);
      row_begin = std::min(row_begin, w_.plan.key_blocks[block].row_begin);
      row_end = std::max(row_end, w_.plan.key_blocks[block].row_end);
    }
    for (int64_t h = g * w_.group; h < (g + 1) * w_.group; ++h) {
      float* sums[kKeyBlocks];
      for (int64_t n = 0; n < end - begin; ++n) sums[n] = trees[n].Next();
      for (int64_t row = row_begin; row < row_end; row += kRowBlocks) {
        for (int64_t block = begin; block < end; ++block) {
          AddRows(block, h, row, row + kRowBlocks, with_dq, tiles, sums[block - begin]);
        }
      }
      for (FusedSumTree& tree : trees) tree.Push();
    }
    for (int64_t block = begin; block < end; ++block) StoreKeyBlock(block, g, trees[block - begin].Root());
  }

  // To a key block's sums of head h, what query blocks [begin, end) add.
  void AddRows(int64_t block, int64_t h, int64_t begin, int64_t end, bool with_dq, float* tiles,
               float* sums) {
    float *pd = tiles, *ds = pd + 64 * 64, *spare = ds + 64 * 64;
    float *dv = sums, *dk = dv + 64 * w_.call.v_width;
    const FusedKeyBlock& plan = w_.plan.key_blocks[block];
    const FusedKeys keys = c_.Keys(plan.segment_begin, h / w_.group);
    const int64_t index = block - plan.segment_begin;
    for (int64_t i = std::max(begin, plan.row_begin); i < std::min(end, plan.row_end); ++i) {
      if (!w_.plan.Active(i, index)) continue;
      const FusedRows rows = c_.RowBlock(i, h);
      w_.kernels.pairs(w_.call, rows, keys, index, round_, pd, ds, spare);
      w_.kernels.add_over_rows(pd, rows.d_out_lanes, w_.call.v_width, plan.count, Even(rows.rows), dv);
      w_.kernels.add_over_rows(ds, rows.q_lanes, w_.call.qk_width, plan.count, Even(rows.rows), dk);
      if (with_dq) AddDq(keys, index, plan.count, ds, rows.rows, c_.Dq(i, h));
    }
  }

  void StoreKeyBlock(int64_t block, int64_t g, const float* sums) {
    const FusedKeyBlock& plan = w_.plan.key_blocks[block];
    const int32_t* tokens = &w_.plan.key_tokens[64 * block];
    const int64_t v_width = w_.call.v_width;
    w_.kernels.store_rows(w_.TargetOf(grads_.dv, plan.batch, g, w_.shape.v_dim), tokens, plan.count, sums,
                          v_width, 1.0f);
    w_.kernels.store_rows(w_.TargetOf(grads_.dk, plan.batch, g, w_.shape.qk_dim), tokens, plan.count,
                          sums + 64 * v_width, w_.call.qk_width, w_.options.scale);
  }

  void AddDq(const FusedKeys& keys, int64_t index, int32_t count, const float* ds, int32_t rows, float* dq) {
    const int64_t width = w_.call.qk_width;
    w_.kernels.add_over_keys(ds, keys.k_lanes + index * 64 * width, width, rows, Even(count), dq);
  }

  void RowBlock(int64_t block, int64_t h) {
    static thread_local ThreadScratch scratch;
    float* ds = scratch.Floats(3 * 64 * 64);
    const FusedRowBlock& plan = w_.plan.row_blocks[block];
    const FusedRows rows = c_.RowBlock(block, h);
    for (int64_t index = plan.first_block; index < plan.end_block; ++index) {
      if (!w_.plan.Active(block, index)) continue;
      const FusedKeys keys = c_.Keys(plan.key_begin, h / w_.group);
      w_.kernels.pairs(w_.call, rows, keys, index, round_, nullptr, ds, ds + 64 * 64);
      AddDq(keys, index, w_.plan.key_blocks[plan.key_begin + index].count, ds, rows.rows, c_.Dq(block, h));
    }
  }

  void StoreDq() {
    w_.context.pool.ParallelFor(chunk().rows() * w_.shape.heads, [&](int64_t n, int) {
      const int64_t block = chunk().row_begin + n % chunk().rows(), h = n / chunk().rows();
      const FusedRowBlock& plan = w_.plan.row_blocks[block];
      w_.kernels.store_rows(w_.TargetOf(grads_.dq, plan.batch, h, w_.shape.qk_dim),
                            &w_.plan.row_tokens[64 * block], plan.count, c_.Dq(block, h), w_.call.qk_width,
                            w_.options.scale);
    });
  }

  void SinkOf(int64_t h, const std::vector<float>& sums) const {
    std::vector<float> memory(FusedSumTree::Floats(w_.shape.batch, 16));
    FusedSumTree tree(w_.kernels, 16, memory.data());
    for (int64_t b = 0; b < w_.shape.batch; ++b) {
      tree.Next()[0] = sums[b * w_.shape.heads + h];
      tree.Push();
    }
    grads_.d_sink[h] = -tree.Root()[0];
  }

  FusedWork& w_;
  const FusedAttentionGrads& grads_;
  FusedBackwardChunk c_;
  const bool round_;
  int64_t tiles_ = 0, sum_ = 0, tree_ = 0;  // floats
};

}  // namespace

Status FusedAttentionGrad(const KernelContext& context, const FusedAttentionShape& shape,
                          const FusedAttentionOptions& options, const FusedAttentionInputs& inputs,
                          const FusedAttentionSaved& saved, const FusedAttentionGrads& grads) {
  RETURN_IF_ERROR(CheckFusedAttention(shape, options, inputs));
  RETURN_IF_ERROR(CheckFusedGrads(shape, options, saved, grads));
  const ScopedFloatEnv env;
  // The gradient of the bias reads rows from any slot on.
  FusedWork work(context, shape, options, inputs, /*floats=*/grads.d_bias != nullptr);
  return Backward(work, saved, grads).Run();
}

}  // namespace plumbline

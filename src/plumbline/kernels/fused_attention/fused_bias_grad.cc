// The bias has an element for every pair, so its gradient is written tile by tile by whoever owns 16 query
// tokens of it: for each (batch row, head) that the element was broadcast to, dS is computed once more.
#include "plumbline/kernels/fused_attention/fused_backward.h"

namespace plumbline {
namespace {

constexpr int64_t kRows = 16;

class BiasGrad {
 public:
  BiasGrad(const FusedBackwardChunk& chunk, void* d_bias)
      : c_(chunk),
        w_(chunk.work),
        d_bias_(static_cast<char*>(d_bias)),
        width_(RoundUp16(w_.shape.kv_tokens)) {
    slots_.assign((c_.chunk.batch_end - c_.chunk.batch_begin) * w_.shape.q_tokens, -1);
    for (int64_t block = c_.chunk.row_begin; block < c_.chunk.row_end; ++block) {
      const FusedRowBlock& rows = w_.plan.row_blocks[block];
      for (int64_t slot = 64 * block; slot < 64 * block + rows.count; ++slot) {
        slots_[(rows.batch - c_.chunk.batch_begin) * w_.shape.q_tokens + w_.plan.row_tokens[slot]] = slot;
      }
    }
  }

  void Run() {
    const int64_t batches = w_.options.bias_batch > 1 ? c_.chunk.batch_end - c_.chunk.batch_begin : 1;
    const int64_t runs = (w_.shape.q_tokens + kRows - 1) / kRows;
    w_.context.pool.ParallelFor(batches * w_.options.bias_heads * runs, [&](int64_t n, int) {
      const int64_t head = n / runs % w_.options.bias_heads;
      Rows(w_.options.bias_batch > 1 ? c_.chunk.batch_begin + n / runs / w_.options.bias_heads : 0, head,
           n % runs * kRows);
    });
  }

 private:
  void Rows(int64_t bias_batch, int64_t bias_head, int64_t first) {
    static thread_local ThreadScratch scratch;
    const int64_t batches = w_.options.bias_batch > 1 ? 1 : w_.shape.batch;
    const int64_t heads = w_.options.bias_heads > 1 ? 1 : w_.shape.heads;
    float* tile = scratch.Floats(4 * 64 * 64 + FusedSumTree::Floats(batches * heads, kRows * width_));
    FusedSumTree tree(w_.kernels, kRows * width_, tile + 4 * 64 * 64);
    for (int64_t b = bias_batch; b < bias_batch + batches; ++b) {
      for (int64_t h = bias_head; h < bias_head + heads; ++h) {
        Term(b, h, first, tile, tree.Next());
        tree.Push();
      }
    }
    int32_t tokens[kRows];
    for (int64_t i = 0; i < kRows; ++i) {
      tokens[i] = first + i < w_.shape.q_tokens ? static_cast<int32_t>(first + i) : -1;
    }
    const int64_t size = w_.call.result_type == FusedType::kF32 ? 4 : 2;
    const int64_t plane = bias_batch * w_.options.bias_heads + bias_head;
    const FusedTarget target = {w_.call.result_type,
                                d_bias_ + plane * w_.shape.q_tokens * w_.shape.kv_tokens * size,
                                w_.shape.kv_tokens, w_.shape.kv_tokens};
    w_.kernels.store_rows(target, tokens, kRows, tree.Root(), width_,
                          w_.options.bias_type == FusedBias::kPreScale ? w_.options.scale : 1.0f);
  }

  // dS of head (b, h) for tokens [first, first + 16) into term [16, width]: by runs of tokens whose slots
  // follow one another inside one segment.
  void Term(int64_t b, int64_t h, int64_t first, float* tile, float* term) {
    const int64_t end = std::min(first + kRows, w_.shape.q_tokens);
    const int64_t* slots = &slots_[(b - c_.chunk.batch_begin) * w_.shape.q_tokens];
    for (int64_t i = first; i < end;) {
      int64_t next = i + 1;
      while (next < end && slots[next] == slots[next - 1] + 1 && slots[i] >= 0 &&
             KeyBegin(slots[next]) == KeyBegin(slots[i])) {
        ++next;
      }
      if (slots[i] >= 0)
        Run(b, h, slots[i], static_cast<int32_t>(next - i), tile, term + (i - first) * width_);
      i = next;
    }
  }

  int64_t KeyBegin(int64_t slot) const { return w_.plan.row_blocks[slot / 64].key_begin; }

  void Run(int64_t b, int64_t h, int64_t slot, int32_t count, float* tile, float* term) {
    const FusedRows rows = c_.Rows(b, h, slot, count);
    int64_t begin = std::numeric_limits<int64_t>::max(), end = 0;
    for (int32_t r = 0; r < count; ++r) {
      if (rows.lo[r] >= rows.hi[r]) continue;
      begin = std::min<int64_t>(begin, rows.lo[r] / 64);
      end = std::max<int64_t>(end, (rows.hi[r] + 63) / 64);
    }
    if (begin >= end) return;
    const FusedKeys keys = c_.Keys(KeyBegin(slot), h / w_.group);
    for (int64_t block = begin; block < end; ++block) {
      w_.kernels.pairs(w_.call, rows, keys, block, /*round=*/false, nullptr, tile, tile + 64 * 64);
      for (int32_t r = 0; r < count; ++r) {
        for (int i = 0; i < 64; ++i) {
          const int32_t token = keys.tokens[64 * block + i];
          if (token >= 0) term[r * width_ + token] = tile[64 * r + i];
        }
      }
    }
  }

  const FusedBackwardChunk& c_;
  const FusedWork& w_;
  char* const d_bias_;
  const int64_t width_;
  std::vector<int64_t> slots_;  // [batch rows of the chunk, q_tokens], -1: padding
};

}  // namespace

void FusedBiasGrad(const FusedBackwardChunk& chunk, void* d_bias) { BiasGrad(chunk, d_bias).Run(); }

}  // namespace plumbline

#include <algorithm>
#include <vector>

#include "plumbline/base/check.h"
#include "plumbline/kernels/attention/attention.h"
#include "plumbline/kernels/attention/attention_kernels.h"
#include "plumbline/kernels/attention/attention_kernels_of.h"
#include "plumbline/kernels/attention/thread_scratch.h"
#include "plumbline/kernels/for_rows.h"

namespace plumbline {
namespace {

// The tokens of one sequence that fall in one block. A block is written by one thread: two keys share a word.
struct BlockRun {
  char* page;
  int64_t position;  // of the first token
  int64_t first_row;
  int32_t count;
};

void FindRuns(const PagedBatch& batch, int64_t page_size, std::vector<BlockRun>* runs) {
  runs->clear();
  for (size_t b = 0; b + 1 < batch.row_offsets.size(); ++b) {
    int64_t position = batch.cache_lengths[b];
    for (int64_t row = batch.row_offsets[b]; row < batch.row_offsets[b + 1];) {
      const int64_t room = kKeyBlock - position % kKeyBlock;
      const auto count = static_cast<int32_t>(std::min<int64_t>(room, batch.row_offsets[b + 1] - row));
      auto* page = static_cast<char*>(batch.pages[b][position / page_size]);
      if (page != nullptr) runs->push_back({page, position, row, count});
      position += count;
      row += count;
    }
  }
}

}  // namespace

void StoreKv(const KernelContext& context, const KvLayout& layout, const PagedBatch& batch, int64_t layer,
             MatrixView<const float> k, MatrixView<const float> v) {
  PLUMBLINE_CHECK(layout.page_size > 0 && layout.page_size % kKeyBlock == 0);
  PLUMBLINE_CHECK(layer >= 0 && layer < layout.layers);
  PLUMBLINE_CHECK(k.cols == layout.kv_heads * layout.head_dim && v.cols == k.cols && v.rows == k.rows);
  PLUMBLINE_CHECK(batch.row_offsets.size() == batch.cache_lengths.size() + 1);
  PLUMBLINE_CHECK(batch.pages.size() == batch.cache_lengths.size() && batch.row_offsets.back() == k.rows);
  static thread_local std::vector<BlockRun> own_runs;
  FindRuns(batch, layout.page_size, &own_runs);
  const std::vector<BlockRun>& runs = own_runs;
  const AttentionKernels& kernels = AttentionKernelsOf(context.isa);
  const auto store = layout.compute == Compute::kBf16 ? kernels.store_bf16 : kernels.store_f32;

  const auto store_run = [&](int64_t i) {
    static thread_local ThreadScratch scratch;
    const BlockRun& run = runs[i / layout.kv_heads];
    const int64_t kv_head = i % layout.kv_heads;
    const KvBlockTokens tokens = {
        .block = run.page + layout.BlockOffset(layer, kv_head, run.position),
        .head_dim = layout.head_dim,
        .first = static_cast<int32_t>(run.position % kKeyBlock),
        .count = run.count,
        .k = k.Row(run.first_row) + kv_head * layout.head_dim,
        .v = v.Row(run.first_row) + kv_head * layout.head_dim,
        .k_stride = k.stride,
        .v_stride = v.stride,
    };
    auto* words = reinterpret_cast<uint32_t*>(scratch.Floats(RoundUp16(layout.head_dim) * kKeyBlock));
    store(tokens, words);
  };
  ForRows(context.pool, std::ssize(runs) * layout.kv_heads, k.rows * k.cols * 2,
          [&](int64_t first, int64_t count) {
            for (int64_t i = first; i < first + count; ++i) store_run(i);
          });
}

}  // namespace plumbline

// Times of one layer's attention: prefill and decode. Not built by default.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "plumbline/kernels/attention/attention.h"
#include "plumbline/tensor/buffer.h"

namespace plumbline {
namespace {

struct Workload {
  const char* name;
  int64_t kv_heads, group, head_dim;
  int64_t sequences, cached, rows;  // of each sequence
};

double BestSeconds(const auto& work) {
  double best = 1e9;
  for (int i = 0; i < 15; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

void Bench(const Workload& w, Isa isa, int threads, int64_t page_size) {
  const KvLayout layout = {
      .layers = 8, .kv_heads = w.kv_heads, .head_dim = w.head_dim, .page_size = page_size};
  const int64_t length = w.cached + w.rows, pages = (length + page_size - 1) / page_size;
  Buffer memory = Buffer::Allocate(w.sequences * pages * layout.PageBytes()).value();
  std::vector<std::vector<void*>> tables(w.sequences);
  std::vector<void* const*> table_pointers;
  std::vector<int32_t> offsets = {0}, lengths, all_offsets = {0}, zeros(w.sequences, 0);
  for (int64_t b = 0; b < w.sequences; ++b) {
    for (int64_t p = 0; p < pages; ++p) {
      tables[b].push_back(static_cast<char*>(memory.data()) + (b * pages + p) * layout.PageBytes());
    }
    table_pointers.push_back(tables[b].data());
    offsets.push_back(offsets.back() + w.rows);
    all_offsets.push_back(all_offsets.back() + length);
    lengths.push_back(w.cached);
  }
  ThreadPool pool(threads);
  const KernelContext context = {pool, isa};
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> kv(w.sequences * length * w.kv_heads * w.head_dim);
  std::vector<float> q(w.sequences * w.rows * w.kv_heads * w.group * w.head_dim), out(q.size());
  for (float& x : kv) x = normal(random);
  for (float& x : q) x = normal(random);
  const MatrixView<const float> kv_view(kv.data(), w.sequences * length, w.kv_heads * w.head_dim);
  const MatrixView<const float> q_view(q.data(), w.sequences * w.rows, w.kv_heads * w.group * w.head_dim);
  const MatrixView<float> out_view(out.data(), q_view.rows, q_view.cols);
  const PagedBatch all = {all_offsets, zeros, table_pointers}, step = {offsets, lengths, table_pointers};
  for (int64_t layer = 0; layer < layout.layers; ++layer)
    StoreKv(context, layout, all, layer, kv_view, kv_view);

  int64_t layer = 0;
  const double seconds = BestSeconds([&] {
    Attention(context, layout, step, layer++ % layout.layers, w.kv_heads * w.group, q_view, {.scale = 0.125f},
              out_view);
  });
  const double store = BestSeconds([&] { StoreKv(context, layout, all, 0, kv_view, kv_view); });
  double keys = 0;
  for (int64_t i = 0; i < w.rows; ++i) keys += static_cast<double>(w.cached + i + 1);
  const double flops = 4.0 * keys * w.head_dim * w.kv_heads * w.group * w.sequences;
  const double bytes = 4.0 * w.head_dim * w.kv_heads * length * w.sequences;
  std::printf("%-22s %-12s threads %d  %9.1f us  %7.1f GFLOP/s  %6.1f GB/s   store all %8.1f us\n", w.name,
              std::string(Name(isa)).c_str(), threads, seconds * 1e6, flops / seconds * 1e-9,
              bytes / seconds * 1e-9, store * 1e6);
}

}  // namespace
}  // namespace plumbline

int main(int argc, char** argv) {
  using namespace plumbline;
  const int max_threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const Workload workloads[] = {
      {"prefill 512, 135M", 3, 3, 64, 1, 0, 512},     {"prefill 2048, 135M", 3, 3, 64, 1, 0, 2048},
      {"prefill 512, 1B", 8, 4, 64, 1, 0, 512},       {"prefill 512, 8B", 8, 4, 128, 1, 0, 512},
      {"decode at 100, 135M", 3, 3, 64, 1, 100, 1},   {"decode at 2048, 135M", 3, 3, 64, 1, 2048, 1},
      {"decode at 2048, 8B", 8, 4, 128, 1, 2048, 1},  {"decode 16 x 512, 135M", 3, 3, 64, 16, 512, 1},
      {"decode at 4096, MHA", 16, 1, 64, 1, 4096, 1},
  };
  for (const Workload& w : workloads) {
    for (int threads = 1; threads <= max_threads; ++threads) Bench(w, SupportedIsas().back(), threads, 64);
  }
  for (Isa isa : SupportedIsas()) Bench(workloads[0], isa, 1, 64);
  return 0;
}

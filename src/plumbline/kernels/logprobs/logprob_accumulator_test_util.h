// Rows of logits of every hard kind, and accumulators fed with them. For tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "plumbline/kernels/logprobs/logprob_accumulator.h"
#include "plumbline/kernels/logprobs/logprobs_test_util.h"

namespace plumbline::logprobs_testing {

struct Rows {
  Rows(int64_t rows_in, int64_t vocab_in, std::mt19937& random) : rows(rows_in), vocab(vocab_in) {
    for (int64_t row = 0; row < rows; ++row) {
      const std::vector<float> x = Row(kKinds[row % std::size(kKinds)], vocab, random);
      logits.insert(logits.end(), x.begin(), x.end());
      chosen.push_back(static_cast<int32_t>(random() % vocab));
      chosen_logits.push_back(x[chosen.back()]);
    }
  }
  std::span<const float> X(int64_t row) const { return {&logits[row * vocab], static_cast<size_t>(vocab)}; }
  LogProbShape Shape(int64_t top_k) const { return {.rows = rows, .vocab = vocab, .top_k = top_k}; }
  int64_t rows, vocab;
  std::vector<float> logits, chosen_logits;
  std::vector<int32_t> chosen;
};

// Room for the numbers of every row.
struct RowResults {
  explicit RowResults(const LogProbShape& shape)
      : chosen_logprobs(shape.rows), ranks(shape.rows), top(shape.rows * shape.Top()), top_k(shape.Top()) {}
  LogProbRows View() { return {chosen_logprobs, ranks, top}; }
  std::span<const TopEntry> Top(int64_t row) const { return std::span(top).subspan(row * top_k, top_k); }
  std::vector<float> chosen_logprobs;
  std::vector<int64_t> ranks;
  std::vector<TopEntry> top;
  int64_t top_k;
};

// Tiles [begin, end) in a random order, dealt to the threads at random; each tile is copied, so that the
// accumulator sees it alone and at an odd address.
inline void AddTiles(const Rows& data, int64_t begin, int64_t end, int threads, std::mt19937& random,
                     LogProbAccumulator* accumulator) {
  std::vector<std::vector<int64_t>> work(threads);
  std::vector<int64_t> tiles(end - begin);
  std::iota(tiles.begin(), tiles.end(), begin);
  std::shuffle(tiles.begin(), tiles.end(), random);
  for (int64_t tile : tiles) work[random() % threads].push_back(tile);
  std::vector<std::thread> workers;
  for (int thread = 0; thread < threads; ++thread) {
    workers.emplace_back([&, thread] {
      for (int64_t tile : work[thread]) {
        const int64_t width = std::min<int64_t>(kVocabTile, data.vocab - tile * kVocabTile);
        std::vector<float> copy(data.rows * (width + 1) + 1);
        for (int64_t row = 0; row < data.rows; ++row) {
          const auto from = data.logits.begin() + row * data.vocab + tile * kVocabTile;
          std::copy(from, from + width, copy.begin() + 1 + row * (width + 1));
        }
        accumulator->AddTile(tile, MatrixView<const float>(&copy[1], data.rows, width, width + 1), thread);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
}

}  // namespace plumbline::logprobs_testing

#include "plumbline/kernels/share_runs.h"

#include <gtest/gtest.h>

#include <vector>

namespace plumbline {
namespace {

TEST(ShareRuns, EveryIndexComesOnceWhateverTheThreads) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    for (const int64_t count : {0, 1, 2, 3, 7, 18, 96, 1000}) {
      for (int repeat = 0; repeat < 50; ++repeat) {
        std::vector<std::atomic<int>> times(count);
        ShareRuns(pool, count, [&](int64_t begin, int64_t end, int thread) {
          EXPECT_LT(begin, end);
          EXPECT_LT(thread, threads);
          for (int64_t i = begin; i < end; ++i) ++times[i];
        });
        for (const std::atomic<int>& n : times) ASSERT_EQ(n, 1) << count << " on " << threads;
      }
    }
  }
}

// A thread that is held up leaves the rest of its share to others.
TEST(ShareRuns, NobodyWaitsForMoreThanOneRun) {
  ThreadPool pool(2);
  std::atomic<int64_t> done{0};
  std::atomic<bool> held{false};
  ShareRuns(pool, 90, [&](int64_t begin, int64_t end, int /*thread*/) {
    if (!held.exchange(true)) {
      const int64_t mine = end - begin;
      while (done.load() < 90 - mine) std::this_thread::yield();
    }
    done += end - begin;
  });
  EXPECT_EQ(done, 90);
}

}  // namespace
}  // namespace plumbline

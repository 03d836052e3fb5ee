#include "plumbline/kernels/count_allocations.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

namespace {

std::atomic<int64_t> allocations{0};

}  // namespace

void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes == 0 ? 1 : bytes);
}

void* operator new(size_t bytes) {
  void* memory = operator new(bytes, std::nothrow);
  if (memory == nullptr) std::abort();
  return memory;
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace plumbline {

int64_t Allocations() { return allocations.load(std::memory_order_relaxed); }

namespace {

TEST(CountAllocations, CountsWhatContainersAndPointersAskFor) {
  const int64_t before = Allocations();
  std::vector<int> some(3);
  EXPECT_EQ(Allocations(), before + 1);
  some.resize(2);
  EXPECT_EQ(Allocations(), before + 1);
  const auto one = std::make_unique<int64_t>(some[0]);
  EXPECT_EQ(Allocations(), before + 2) << *one;
}

}  // namespace
}  // namespace plumbline

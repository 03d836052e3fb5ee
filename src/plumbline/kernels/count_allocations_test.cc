#include "plumbline/kernels/count_allocations.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "plumbline/tensor/buffer.h"

namespace {

std::atomic<int64_t> allocations{0}, mappings{0};

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" void* mmap(void* address, size_t bytes, int protection, int flags, int file,
                      off_t offset) noexcept {
  mappings.fetch_add(1, std::memory_order_relaxed);
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}
#endif

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
int64_t Mappings() { return mappings.load(std::memory_order_relaxed); }

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

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(CountAllocations, CountsBuffers) {
  const int64_t before = Mappings();
  const auto buffer = Buffer::Allocate(1000);
  EXPECT_TRUE(buffer.has_value());
  EXPECT_EQ(Mappings(), before + 1);
}
#endif

}  // namespace
}  // namespace plumbline

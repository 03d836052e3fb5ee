#include "plumbline/base/memory.h"

#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>

namespace plumbline {
namespace {

// "Key:   123 kB" of a /proc file, in bytes; -1 if absent.
int64_t ReadProcBytes(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    long long kib = 0;
    if (line.starts_with(key) && std::sscanf(line.c_str() + key.size(), ": %lld kB", &kib) == 1)
      return kib * 1024;
  }
  return -1;
}

// A file that holds one number; -1 if absent or not a number ("max").
int64_t ReadNumber(const char* path) {
  std::ifstream file(path);
  int64_t value = -1;
  return file >> value ? value : -1;
}

}  // namespace

int64_t AvailableMemoryBytes() {
  int64_t available = ReadProcBytes("/proc/meminfo", "MemAvailable");
  if (available < 0) available = std::numeric_limits<int64_t>::max();
  const int64_t limit = ReadNumber("/sys/fs/cgroup/memory.max");
  const int64_t used = ReadNumber("/sys/fs/cgroup/memory.current");
  if (limit >= 0 && used >= 0) available = std::min(available, std::max<int64_t>(0, limit - used));
  return available;
}

int64_t PeakResidentBytes() { return std::max<int64_t>(0, ReadProcBytes("/proc/self/status", "VmHWM")); }

void ReleaseFreeHeap() { malloc_trim(0); }

}  // namespace plumbline

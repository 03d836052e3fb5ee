// Hash tables of the BPE model: strings to ids, and pairs of ids to merges. Built once, then read by any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace plumbline {

// Strings to their places in a list, open addressing. Empty strings are left out; of equal ones the last
// counts. The list must outlive the table and stay as it is.
class StringTable {
 public:
  StringTable() = default;
  template <typename Strings>  // a StringList or a std::vector<std::string>
  explicit StringTable(const Strings& strings)
      : StringTable(&strings, strings.size(), [](const void* list, size_t id) -> std::string_view {
          return (*static_cast<const Strings*>(list))[id];
        }) {}
  int32_t Find(std::string_view key) const;  // -1 if absent

 private:
  using StringAt = std::string_view (*)(const void* list, size_t id);
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;
  };
  StringTable(const void* list, size_t size, StringAt at);
  // Where the key is, or the empty slot where it would be.
  size_t SlotOf(std::string_view key, uint32_t hash) const;

  const void* list_ = nullptr;
  StringAt at_ = nullptr;
  std::vector<Slot> slots_;
};

// Pairs of ids to what they merge into.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank = UINT32_MAX;  // lower merges first; UINT32_MAX: no such merge
    int32_t id = -1;
  };

  explicit MergeTable(size_t capacity = 0);
  // A pair that is already there gets the new merge.
  void Insert(int32_t left, int32_t right, Merge merge);
  Merge Find(int32_t left, int32_t right) const {
    const uint64_t key = Key(left, right);
    for (size_t i = Hash(key) & mask_;; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].merge;
      if (slots_[i].key == kEmpty) return {};
    }
  }

  // Calls f(left, right) for each pair, in no particular order.
  template <typename F>
  void ForEach(F f) const {
    for (const Slot& slot : slots_) {
      if (slot.key != kEmpty) f(static_cast<int32_t>(slot.key >> 32), static_cast<int32_t>(slot.key));
    }
  }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;  // no pair of ids >= 0
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };
  static uint64_t Key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  static size_t Hash(uint64_t key) { return (key * 0x9E3779B97F4A7C15u) >> 20; }
  void Grow();
  size_t used_ = 0;
  size_t mask_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace plumbline

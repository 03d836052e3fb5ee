#include "plumbline/text/id_tables.h"

#include <bit>
#include <cstring>

namespace plumbline {
namespace {

// Room for `capacity` merges at a load of at most two thirds: most look-ups find none, and should see so
// soon.
size_t SlotsForMerges(size_t capacity) { return std::bit_ceil(capacity + capacity / 2 + 8); }

// Of strings at most four fifths: hashes tell them apart without a look at the text.
size_t SlotsForStrings(size_t capacity) { return std::bit_ceil(capacity + capacity / 4 + 8); }

uint32_t HashOf(std::string_view key) {
  uint64_t h = key.size() * 0x9E3779B97F4A7C15u;
  const auto mix = [&h](uint64_t word) {
    h = (h ^ word) * 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
  };
  uint64_t word;
  for (; key.size() >= 8; key.remove_prefix(8)) {
    std::memcpy(&word, key.data(), 8);
    mix(word);
  }
  word = 0;
  std::memcpy(&word, key.data(), key.size());
  mix(word);
  return static_cast<uint32_t>(h ^ h >> 29);
}

}  // namespace

StringTable::StringTable(const void* list, size_t size, StringAt at)
    : list_(list), at_(at), slots_(SlotsForStrings(size)) {
  for (size_t id = 0; id < size; ++id) {
    const std::string_view key = at(list, id);
    if (key.empty()) continue;
    const uint32_t hash = HashOf(key);
    slots_[SlotOf(key, hash)] = {hash, static_cast<int32_t>(id)};
  }
}

int32_t StringTable::Find(std::string_view key) const {
  return slots_.empty() ? -1 : slots_[SlotOf(key, HashOf(key))].id;
}

size_t StringTable::SlotOf(std::string_view key, uint32_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t i = hash & mask;
  while (slots_[i].id >= 0 &&
         !(slots_[i].hash == hash && at_(list_, static_cast<size_t>(slots_[i].id)) == key)) {
    i = (i + 1) & mask;
  }
  return i;
}

MergeTable::MergeTable(size_t capacity) : slots_(SlotsForMerges(capacity)) { mask_ = slots_.size() - 1; }

void MergeTable::Insert(int32_t left, int32_t right, Merge merge) {
  if ((used_ + 1) * 3 > slots_.size() * 2) Grow();
  const uint64_t key = Key(left, right);
  size_t i = Hash(key) & mask_;
  while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & mask_;
  if (slots_[i].key == kEmpty) ++used_;
  slots_[i] = {key, merge};
}

void MergeTable::Grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  mask_ = slots_.size() - 1;
  used_ = 0;
  for (const Slot& slot : old) {
    if (slot.key != kEmpty)
      Insert(static_cast<int32_t>(slot.key >> 32), static_cast<int32_t>(slot.key), slot.merge);
  }
}

}  // namespace plumbline

#include "plumbline/comm/local/mailbox.h"

#include <cstring>
#include <utility>

namespace plumbline {
namespace {

void Push(std::atomic<Mailbox::Packet*>& list, Mailbox::Packet* packet) {
  packet->next = list.load(std::memory_order_relaxed);
  while (!list.compare_exchange_weak(packet->next, packet, std::memory_order_release,
                                     std::memory_order_relaxed)) {
  }
}

void Delete(Mailbox::Packet* packet) {
  while (packet != nullptr) delete std::exchange(packet, packet->next);
}

}  // namespace

Mailbox::~Mailbox() {
  Delete(full_.load());
  Delete(empty_.load());
  Delete(spare_);
  Delete(waiting_);
}

void Mailbox::Put(std::span<const std::byte> bytes, int tag) {
  if (spare_ == nullptr) spare_ = empty_.exchange(nullptr, std::memory_order_acquire);
  Packet* packet = spare_ != nullptr ? std::exchange(spare_, spare_->next) : new Packet;
  if (packet->capacity < bytes.size()) {
    packet->bytes = std::make_unique_for_overwrite<std::byte[]>(bytes.size());
    packet->capacity = bytes.size();
  }
  packet->tag = tag;
  packet->size = bytes.size();
  if (!bytes.empty()) std::memcpy(packet->bytes.get(), bytes.data(), bytes.size());
  Push(full_, packet);
  sent_.Raise(++count_);
}

Mailbox::Packet* Mailbox::Take(int tag) {
  Packet* arrived = full_.exchange(nullptr, std::memory_order_acquire);
  Packet* in_order = nullptr;
  while (arrived != nullptr) {
    Packet* next = arrived->next;
    arrived->next = in_order;
    in_order = arrived;
    arrived = next;
    ++seen_;
  }
  Packet** end = &waiting_;
  while (*end != nullptr) end = &(*end)->next;
  *end = in_order;
  for (Packet** at = &waiting_; *at != nullptr; at = &(*at)->next) {
    if ((*at)->tag == tag) return std::exchange(*at, (*at)->next);
  }
  return nullptr;
}

void Mailbox::GiveBack(Packet* packet) { Push(empty_, packet); }

}  // namespace plumbline

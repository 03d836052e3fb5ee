#include "plumbline/pipelines/contract/declared_buffers.h"

namespace plumbline {

DeclaredBuffers::Entry* DeclaredBuffers::Find(std::string_view name) {
  for (Entry& entry : entries_) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

Status DeclaredBuffers::Declare(std::string_view name, DType dtype, const InputShape& largest,
                                DeviceRef device) {
  if (const Entry* entry = Find(name)) {
    if (entry->dtype == dtype && entry->largest == largest && entry->device == device) return {};
    return InvalidInput(
        "{}: got a second declaration as {}, want {} as before (declared buffers)", name,
        ToString(InputTensor{.dtype = dtype, .shape = largest, .device = device}),
        ToString(InputTensor{.dtype = entry->dtype, .shape = entry->largest, .device = entry->device}));
  }
  entries_.push_back({.name = std::string(name), .dtype = dtype, .largest = largest, .device = device});
  return {};
}

Result<InputTensor> DeclaredBuffers::View(std::string_view name, const InputShape& shape) {
  Entry* entry = Find(name);
  if (entry == nullptr) {
    return InvalidInput("{}: got a view of an undeclared buffer, want it declared (declared buffers)", name);
  }
  if (shape.Elements() > entry->largest.Elements()) {
    return Failed("{}: got {} elements, want at most the declared {} (declared buffers)", name,
                  shape.Elements(), entry->largest.Elements());
  }
  if (!entry->allocated) {
    ASSIGN_OR_RETURN(entry->buffer, Buffer::Allocate(ByteSize(entry->dtype, entry->largest.Elements())));
    entry->allocated = true;
    ++allocations_;
  }
  return InputTensor{
      .dtype = entry->dtype, .shape = shape, .data = entry->buffer.data(), .device = entry->device};
}

}  // namespace plumbline

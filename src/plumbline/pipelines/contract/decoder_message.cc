#include "plumbline/pipelines/contract/decoder_message.h"

#include <cstdint>
#include <cstring>

#include "plumbline/pipelines/contract/check_decoder_inputs.h"

namespace plumbline {
namespace {

constexpr uint32_t kMagic = 0x49444c50;  // "PLDI"
constexpr uint32_t kVersion = 1;

struct Header {
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  uint64_t leaves = 0;
  uint64_t bytes = 0;
  uint64_t unused = 0;
};

struct LeafRecord {
  uint32_t dtype = 0;
  int32_t device = -1;
  uint32_t rank = 0;
  uint32_t unused = 0;
  int64_t sizes[kMaxInputRank] = {};
  uint64_t offset = 0;
  uint64_t unused_end = 0;
};
static_assert(sizeof(Header) % kMessageAlignment == 0 && sizeof(LeafRecord) % kMessageAlignment == 0);

constexpr size_t Align(size_t bytes) {
  return (bytes + kMessageAlignment - 1) / kMessageAlignment * kMessageAlignment;
}

int32_t Number(DeviceRef device) { return device.is_host() ? -1 : device.rank(); }

LeafRecord Describe(const InputTensor& tensor, size_t offset) {
  LeafRecord record = {.dtype = static_cast<uint32_t>(tensor.dtype),
                       .device = Number(tensor.device),
                       .rank = static_cast<uint32_t>(tensor.shape.rank()),
                       .offset = offset};
  for (int d = 0; d < tensor.shape.rank(); ++d) record.sizes[d] = tensor.shape[d];
  return record;
}

// The bytes of a record's elements, or nothing where that is no size of this world.
std::optional<uint64_t> BytesOf(const LeafRecord& record, const InputSpec& spec, uint64_t most) {
  uint64_t bytes = Info(spec.dtype).block_bytes;
  if (IsQuantized(spec.dtype)) return std::nullopt;
  bool empty = false;
  for (uint32_t d = 0; d < record.rank; ++d) {
    const int64_t size = record.sizes[d];
    if (size < 0) return std::nullopt;
    empty = empty || size == 0;
  }
  if (empty) return 0;
  for (uint32_t d = 0; d < record.rank; ++d) {
    if (static_cast<uint64_t>(record.sizes[d]) > most / bytes) return std::nullopt;
    bytes *= record.sizes[d];
  }
  return bytes;
}

Status CheckRecord(const LeafName& name, const LeafRecord& record, const InputSpec& spec, uint64_t data,
                   uint64_t message) {
  const auto refuse = [&name](std::string_view what, auto got, auto want) {
    return InvalidInput("{}: got {} {}, want {} (decoder message)", ToString(name), what, got, want);
  };
  if (record.dtype != static_cast<uint32_t>(spec.dtype)) {
    return refuse("dtype number", record.dtype, static_cast<uint32_t>(spec.dtype));
  }
  if (record.device != Number(spec.device)) return refuse("device", record.device, Number(spec.device));
  if (record.rank != spec.shape.size()) return refuse("dimensions", record.rank, spec.shape.size());
  for (uint32_t d = 0; d < record.rank; ++d) {
    if (!spec.shape[d].is_named() && record.sizes[d] != spec.shape[d].size) {
      return refuse("a dimension of", record.sizes[d], spec.shape[d].size);
    }
  }
  const std::optional<uint64_t> bytes = BytesOf(record, spec, message);
  const bool inside = bytes.has_value() && record.offset % kMessageAlignment == 0 && record.offset >= data &&
                      record.offset <= message && *bytes <= message - record.offset;
  if (!inside) return refuse("data at", record.offset, fmt::format("it inside the {} bytes", message));
  return {};
}

Result<Header> ReadHeader(std::span<const std::byte> message, uint64_t leaves) {
  if (reinterpret_cast<uintptr_t>(message.data()) % kMessageAlignment != 0) {
    return InvalidInput("message: got an address that is no multiple of {}, want one (decoder message)",
                        kMessageAlignment);
  }
  Header header;
  if (message.size() < sizeof(header)) {
    return InvalidInput("message: got {} bytes, want at least {} (decoder message)", message.size(),
                        sizeof(header));
  }
  std::memcpy(&header, message.data(), sizeof(header));
  if (header.magic != kMagic || header.version != kVersion) {
    return InvalidInput("message: got magic {:#x} version {}, want {:#x} version {} (decoder message)",
                        header.magic, header.version, kMagic, kVersion);
  }
  if (header.bytes != message.size()) {
    return InvalidInput("message: got {} bytes, want {} (decoder message)", message.size(), header.bytes);
  }
  if (header.leaves != leaves) {
    return InvalidInput("message: got {} leaves, want the declared {} (decoder message)", header.leaves,
                        leaves);
  }
  if (message.size() < sizeof(header) + leaves * sizeof(LeafRecord)) {
    return InvalidInput("message: got {} bytes, want at least {} of {} leaves (decoder message)",
                        message.size(), sizeof(header) + leaves * sizeof(LeafRecord), leaves);
  }
  return header;
}

uint64_t CarriedLeaves(const DecoderInputs<InputSpec>& declared) {
  uint64_t leaves = 0;
  ForEachLeaf(declared, [&leaves](const LeafName&, const InputSpec& spec) {
    leaves += spec.residence == Residence::kCarried;
  });
  return leaves;
}

}  // namespace

Status Pack(const DecoderInputs<InputTensor>& inputs, const DecoderInputs<InputSpec>& declared,
            std::vector<std::byte>& message) {
  RETURN_IF_ERROR(CheckSameStructure(inputs, declared));
  Header header = {.leaves = CarriedLeaves(declared)};
  size_t bytes = sizeof(Header) + header.leaves * sizeof(LeafRecord);
  Status status;
  ForEachLeafPair(
      inputs, declared, [&](const LeafName& name, const InputTensor& tensor, const InputSpec& spec) {
        if (spec.residence != Residence::kCarried) return;
        if (tensor.data == nullptr && tensor.shape.Elements() != 0 && status.has_value()) {
          status = InvalidInput("{}: got no data, want {} (decoder message)", ToString(name), ToString(spec));
        }
        bytes += Align(tensor.Bytes());
      });
  RETURN_IF_ERROR(status);
  header.bytes = bytes;
  message.resize(bytes);
  std::memcpy(message.data(), &header, sizeof(header));
  size_t record_at = sizeof(Header), data_at = sizeof(Header) + header.leaves * sizeof(LeafRecord);
  ForEachLeafPair(inputs, declared, [&](const LeafName&, const InputTensor& tensor, const InputSpec& spec) {
    if (spec.residence != Residence::kCarried) return;
    const LeafRecord record = Describe(tensor, data_at);
    std::memcpy(&message[record_at], &record, sizeof(record));
    record_at += sizeof(record);
    const auto size = static_cast<size_t>(tensor.Bytes());
    if (size == 0) return;
    std::memcpy(&message[data_at], tensor.data, size);
    std::memset(&message[data_at] + size, 0, Align(size) - size);
    data_at += Align(size);
  });
  return {};
}

Status Unpack(std::span<std::byte> message, const DecoderInputs<InputSpec>& declared,
              DecoderInputs<InputTensor>& inputs) {
  RETURN_IF_ERROR(CheckSameStructure(inputs, declared));
  ASSIGN_OR_RETURN(const Header header, ReadHeader(message, CarriedLeaves(declared)));
  size_t record_at = sizeof(Header);
  const uint64_t data = sizeof(Header) + header.leaves * sizeof(LeafRecord);
  Status status;
  ForEachLeafPair(inputs, declared, [&](const LeafName& name, InputTensor& tensor, const InputSpec& spec) {
    if (spec.residence != Residence::kCarried || !status.has_value()) return;
    LeafRecord record;
    std::memcpy(&record, &message[record_at], sizeof(record));
    record_at += sizeof(record);
    status = CheckRecord(name, record, spec, data, message.size());
    if (!status.has_value()) return;
    tensor = {.dtype = spec.dtype,
              .shape = InputShape(std::span<const int64_t>(record.sizes, record.rank)),
              .data = message.data() + record.offset,
              .device = spec.device};
  });
  return status;
}

}  // namespace plumbline

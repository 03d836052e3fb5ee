#include "plumbline/io/gguf.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "plumbline/io/ggml_types.h"
#include "plumbline/io/gguf_reader.h"
#include "plumbline/io/quote.h"

namespace plumbline {
namespace {

constexpr uint32_t kMagic = 0x46554747;          // "GGUF"
constexpr uint32_t kReversedMagic = 0x47475546;  // its bytes the other way round
constexpr int64_t kDefaultAlignment = 32;
constexpr int64_t kMaxAlignment = int64_t{1} << 31;
constexpr uint32_t kMaxDims = 4;
constexpr size_t kMaxTensorNameBytes = 64;  // GGUF's own limit
constexpr size_t kMinTensorBytes = 33;      // name length 8, name 1, dimensions 4 and 8, type 4, offset 8

struct TensorInfo {
  RawTensor tensor;  // without data
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

Result<uint32_t> ReadVersion(GgufReader& reader) {
  ASSIGN_OR_RETURN(const uint32_t magic, reader.Read<uint32_t>("magic"));
  if (magic == kReversedMagic)
    return reader.Fault("magic", "got a big-endian file, want a little-endian one");
  if (magic != kMagic) return reader.Fault("magic", "got {:#010x}, want {:#010x}", magic, kMagic);
  ASSIGN_OR_RETURN(const uint32_t version, reader.Read<uint32_t>("version"));
  // Big-endian files keep the magic in order and reverse all else, so their small version has its low half
  // zero.
  if (version != 0 && (version & 0xffffu) == 0) {
    return reader.Fault("version", "got a big-endian file, want a little-endian one");
  }
  if (version != 2 && version != 3) return reader.Fault("version", "got {}, want 2 or 3", version);
  return version;
}

Result<std::vector<int64_t>> ReadShape(GgufReader& reader) {
  ASSIGN_OR_RETURN(const uint32_t dims, reader.Read<uint32_t>("number of dimensions"));
  if (dims < 1 || dims > kMaxDims)
    return reader.Fault("number of dimensions", "got {}, want 1 to {}", dims, kMaxDims);
  std::vector<int64_t> shape(dims);
  int64_t elements = 1;
  for (uint32_t i = 0; i < dims; ++i) {
    ASSIGN_OR_RETURN(const uint64_t dim, reader.Read<uint64_t>("dimension"));
    if (dim == 0) return reader.Fault("dimension", "got 0, want a positive size");
    if (dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max() / elements)) {
      return reader.Fault("dimension", "got {}, want fewer than 2^63 elements in all", dim);
    }
    elements *= static_cast<int64_t>(dim);
    shape[dims - 1 - i] = static_cast<int64_t>(dim);  // the file has the innermost first
  }
  return shape;
}

Result<DType> ReadType(GgufReader& reader) {
  ASSIGN_OR_RETURN(const uint32_t number, reader.Read<uint32_t>("type"));
  const GgmlType* type = FindGgmlType(number);
  if (type == nullptr)
    return reader.Fault("type", "got ggml type number {}, want one that ggml defines", number);
  if (!type->dtype.has_value()) {
    return reader.Fault(
        "type", "got {}, want F32, F16, BF16, I32, I64, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K or Q6_K",
        type->name);
  }
  return *type->dtype;
}

Result<TensorInfo> ReadTensorInfo(GgufReader& reader, int64_t alignment) {
  TensorInfo info;
  ASSIGN_OR_RETURN(const std::string_view name, reader.ReadString("name"));
  if (name.empty() || name.size() > kMaxTensorNameBytes) {
    return reader.Fault("name", "got {} bytes, want 1 to {}", name.size(), kMaxTensorNameBytes);
  }
  info.tensor.name = name;
  reader.set_subject(fmt::format("tensor {}", Quote(name)));
  ASSIGN_OR_RETURN(info.tensor.shape, ReadShape(reader));
  ASSIGN_OR_RETURN(info.tensor.dtype, ReadType(reader));
  ASSIGN_OR_RETURN(info.offset, reader.Read<uint64_t>("offset"));

  const DTypeInfo& type = Info(info.tensor.dtype);
  const int64_t row = info.tensor.shape.back();
  if (row % type.block_elements != 0) {
    return reader.Fault("row", "got {} elements, want a multiple of the {} block of {}", row, type.name,
                        type.block_elements);
  }
  const int64_t blocks = info.tensor.Elements() / type.block_elements;
  if (blocks > std::numeric_limits<int64_t>::max() / type.block_bytes) {
    return reader.Fault("size", "got {} {} blocks, want fewer than 2^63 bytes", blocks, type.name);
  }
  info.bytes = static_cast<uint64_t>(blocks * type.block_bytes);
  if (info.offset % static_cast<uint64_t>(alignment) != 0) {
    return reader.Fault("offset", "got {}, want a multiple of the alignment {}", info.offset, alignment);
  }
  return info;
}

Result<std::vector<TensorInfo>> ReadTensorInfos(GgufReader& reader, uint64_t count, int64_t alignment) {
  reader.set_subject("tensor");
  if (count > reader.remaining() / kMinTensorBytes) {
    return reader.Fault("count", "got {}, want no more than the {} bytes left can hold", count,
                        reader.remaining());
  }
  std::vector<TensorInfo> infos;
  infos.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    reader.set_subject(fmt::format("tensor {} of {}", i, count));
    ASSIGN_OR_RETURN(TensorInfo info, ReadTensorInfo(reader, alignment));
    infos.push_back(std::move(info));
  }
  return infos;
}

// Points every tensor at its bytes in `data`, the file from the aligned end of the header on.
Status PlaceTensors(std::span<const uint8_t> data, std::string_view where, std::vector<TensorInfo>& infos) {
  for (TensorInfo& info : infos) {
    if (info.offset > data.size() || info.bytes > data.size() - info.offset) {
      return InvalidInput("tensor {}: got {} bytes at offset {}, want them inside the {} bytes of data ({})",
                          Quote(info.tensor.name), info.bytes, info.offset, data.size(), where);
    }
    info.tensor.data = data.data() + info.offset;
  }
  std::vector<size_t> order(infos.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return infos[a].offset < infos[b].offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const TensorInfo& before = infos[order[i - 1]];
    const TensorInfo& after = infos[order[i]];
    if (after.offset < before.offset + before.bytes) {
      return InvalidInput("tensor {}: got offset {}, want it past the end of tensor {} at {} ({})",
                          Quote(after.tensor.name), after.offset, Quote(before.tensor.name),
                          before.offset + before.bytes, where);
    }
  }
  return {};
}

}  // namespace

Result<GgufFile> GgufFile::Parse(std::span<const uint8_t> bytes, std::string_view where) {
  GgufReader reader(bytes, where);
  GgufFile file;
  file.where_ = where;
  ASSIGN_OR_RETURN(file.version_, ReadVersion(reader));
  ASSIGN_OR_RETURN(const uint64_t tensor_count, reader.Read<uint64_t>("tensor count"));
  ASSIGN_OR_RETURN(const uint64_t metadata_count, reader.Read<uint64_t>("metadata count"));
  ASSIGN_OR_RETURN(file.metadata_, ReadGgufMetadata(reader, metadata_count));
  ASSIGN_OR_RETURN(const int64_t alignment, file.GetIntOr("general.alignment", kDefaultAlignment));
  if (alignment < 1 || alignment > kMaxAlignment || !std::has_single_bit(static_cast<uint64_t>(alignment))) {
    return InvalidInput("metadata 'general.alignment': got {}, want a power of two up to 2^31 ({})",
                        alignment, where);
  }
  ASSIGN_OR_RETURN(std::vector<TensorInfo> infos, ReadTensorInfos(reader, tensor_count, alignment));

  const uint64_t mask = static_cast<uint64_t>(alignment) - 1;
  const uint64_t data_begin = (reader.offset() + mask) & ~mask;
  // A file without tensors may end where its header ends, short of the alignment.
  RETURN_IF_ERROR(PlaceTensors(bytes.subspan(std::min<uint64_t>(data_begin, bytes.size())), where, infos));
  file.tensors_.reserve(infos.size());
  for (TensorInfo& info : infos) {
    if (!file.index_.emplace(info.tensor.name, file.tensors_.size()).second) {
      return InvalidInput("tensor {}: got it twice, want unique names ({})", Quote(info.tensor.name), where);
    }
    file.tensors_.push_back(std::move(info.tensor));
  }
  return file;
}

}  // namespace plumbline

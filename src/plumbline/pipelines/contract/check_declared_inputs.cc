#include <algorithm>

#include "plumbline/pipelines/contract/check_decoder_inputs.h"

namespace plumbline {
namespace {

constexpr std::string_view kWhere = "declared inputs";

bool OneOf(DType dtype, std::initializer_list<DType> dtypes) {
  return std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end();
}

std::string Names(std::initializer_list<DType> dtypes) {
  std::string names;
  for (DType dtype : dtypes) names += fmt::format("{}{}", names.empty() ? "" : " or ", Info(dtype).name);
  return names;
}

Status CheckDType(const LeafName& name, const InputSpec& spec, std::initializer_list<DType> want) {
  if (want.size() == 0 || OneOf(spec.dtype, want)) return {};
  return InvalidInput("{}: got dtype {}, want {} ({})", ToString(name), Info(spec.dtype).name, Names(want),
                      kWhere);
}

Status CheckShape(const LeafName& name, const InputSpec& spec, const std::vector<Dim>& want) {
  if (spec.shape == want) return {};
  return InvalidInput("{}: got shape {}, want {} ({})", ToString(name), ToString(spec.shape), ToString(want),
                      kWhere);
}

Status CheckDevice(const LeafName& name, const InputSpec& spec, DeviceRef want) {
  if (spec.device == want) return {};
  return InvalidInput("{}: got device {}, want {} ({})", ToString(name), ToString(spec.device),
                      ToString(want), kWhere);
}

Status CheckResidence(const LeafName& name, const InputSpec& spec, Residence want) {
  if (spec.residence == want) return {};
  const auto text = [](Residence residence) {
    return residence == Residence::kCarried ? "carried" : "rank-local";
  };
  return InvalidInput("{}: got a {} leaf, want a {} one ({})", ToString(name), text(spec.residence),
                      text(want), kWhere);
}

Status CheckRow(const LeafName& name, const InputSpec& spec, DType dtype, const std::vector<Dim>& shape,
                DeviceRef device, Residence residence = Residence::kCarried) {
  RETURN_IF_ERROR(CheckDType(name, spec, {dtype}));
  RETURN_IF_ERROR(CheckShape(name, spec, shape));
  RETURN_IF_ERROR(CheckDevice(name, spec, device));
  return CheckResidence(name, spec, residence);
}

// Buffers that a rank keeps: constants, scratch, a stage boundary.
Status CheckOnDevice(const LeafName& name, const InputSpec& spec) {
  if (spec.device.is_host()) {
    return InvalidInput("{}: got device host, want a rank ({})", ToString(name), kWhere);
  }
  return CheckResidence(name, spec, Residence::kRankLocal);
}

Status CheckSignal(const LeafName& name, const InputSpec& spec, DeviceRef device) {
  RETURN_IF_ERROR(CheckDType(name, spec, {DType::kU8}));
  if (spec.shape.size() != 1) {
    return InvalidInput("{}: got shape {}, want one dimension ({})", ToString(name), ToString(spec.shape),
                        kWhere);
  }
  RETURN_IF_ERROR(CheckDevice(name, spec, device));
  return CheckResidence(name, spec, Residence::kRankLocal);
}

Status CheckVision(const LeafName& name, const InputSpec& spec, DeviceRef device) {
  const bool embeddings = name.path == "embeddings";
  if (embeddings) {
    RETURN_IF_ERROR(CheckDType(name, spec, {DType::kF32, DType::kBF16}));
    if (spec.shape.size() != 2 || spec.shape[0] != Dim("vision_rows") || spec.shape[1].is_named()) {
      return InvalidInput("{}: got shape {}, want [vision_rows, hidden size] ({})", ToString(name),
                          ToString(spec.shape), kWhere);
    }
    RETURN_IF_ERROR(CheckDevice(name, spec, device));
    return CheckResidence(name, spec, Residence::kCarried);
  }
  return CheckRow(name, spec, DType::kI32, {"vision_rows"}, device);
}

Status CheckLora(const LeafName& name, const InputSpec& spec, DeviceRef first) {
  switch (name.index) {
    case 0:
      return CheckRow(name, spec, DType::kI32, {"lora_groups"}, first);
    case 1:
      return CheckRow(name, spec, DType::kU32, {"lora_group_offsets_len"}, first);
    case 2:
      return CheckRow(name, spec, DType::kI64, {"lora_rows"}, DeviceRef::Host());
    default:
      return {};
  }
}

// A leaf against its row of the table. Counts are right: `index` is a replica or a device.
Status CheckLeaf(const LeafName& name, const InputSpec& spec, const ArchConfig& config,
                 const BatchProcessorRuntime& runtime) {
  using enum DecoderField;
  const DeviceRef first = runtime.devices.front(), host = DeviceRef::Host();
  switch (name.field) {
    case kTokens:
    case kTokenPositions:
      return CheckRow(name, spec, DType::kI64, {"total_seq_len"}, first);
    case kVision:
      return CheckVision(name, spec, runtime.devices[name.index]);
    case kInputRowOffsets:
      return CheckRow(name, spec, DType::kU32, {"input_row_offsets_len"}, first);
    case kHostInputRowOffsets:
      return CheckRow(name, spec, DType::kU32, {"input_row_offsets_len"}, host);
    case kReturnNLogits:
      return CheckRow(name, spec, DType::kI64, {"return_n_logits"}, host);
    case kDataParallelSplits:
      return CheckRow(name, spec, DType::kI64, {runtime.data_parallel_degree + 1}, host);
    case kSignals:
      return CheckSignal(name, spec, runtime.devices[name.index]);
    case kBatchContextLengths:
      if (!config.device_context_length_dtype.has_value())
        return CheckRow(name, spec, DType::kI32, {1}, host);
      return CheckRow(name, spec, *config.device_context_length_dtype, {1}, runtime.devices[name.index]);
    case kEp:
      return CheckResidence(name, spec, Residence::kRankLocal);
    case kLora:
      return CheckLora(name, spec, first);
    case kConstants:
    case kScratch:
    case kStageBoundary:
      return CheckOnDevice(name, spec);
    case kKv:
    case kState:
      return {};
  }
  return {};
}

Status CheckPresence(DecoderField field, bool got, bool want, std::string_view why) {
  if (got == want) return {};
  return InvalidInput("{}: got it {}, want it {} where {} ({})", Name(field), got ? "declared" : "undeclared",
                      want ? "declared" : "undeclared", why, kWhere);
}

Status CheckWhenPresent(const DecoderInputs<InputSpec>& declared, const ArchConfig& config,
                        const BatchProcessorRuntime& runtime) {
  using enum DecoderField;
  RETURN_IF_ERROR(CheckPresence(
      kTokenPositions, declared.token_positions.has_value(), config.takes_token_positions,
      config.takes_token_positions ? "takes_token_positions is set" : "takes_token_positions is not set"));
  if (runtime.data_parallel_degree > 1) {
    const char* why = "replicas run in parallel";
    RETURN_IF_ERROR(
        CheckPresence(kHostInputRowOffsets, declared.host_input_row_offsets.has_value(), true, why));
    RETURN_IF_ERROR(CheckPresence(kDataParallelSplits, declared.data_parallel_splits.has_value(), true, why));
  }
  const bool signals = config.always_signal_buffers || (config.takes_signals && runtime.devices.size() > 1);
  RETURN_IF_ERROR(
      CheckPresence(kSignals, declared.signals.has_value(), signals,
                    signals ? "the decoder takes signal buffers" : "the decoder takes no signal buffers"));
  return CheckPresence(kBatchContextLengths, declared.batch_context_lengths.has_value(),
                       config.takes_batch_context_lengths,
                       config.takes_batch_context_lengths ? "takes_batch_context_lengths is set"
                                                          : "takes_batch_context_lengths is not set");
}

Status CheckCount(LeafName name, size_t got, size_t want, std::string_view of) {
  if (got == want) return {};
  return InvalidInput("{}: got {} leaves, want {}, one for each {} ({})", ToString(name), got, want, of,
                      kWhere);
}

Status CheckContextLengths(size_t count, const ArchConfig& config, const BatchProcessorRuntime& runtime) {
  const LeafName name = {.field = DecoderField::kBatchContextLengths};
  const size_t devices = runtime.devices.size(), replicas = runtime.data_parallel_degree;
  if (!config.device_context_length_dtype.has_value()) return CheckCount(name, count, replicas, "replica");
  if (replicas != 1 && replicas != devices) {
    return InvalidInput(
        "batch_context_lengths: got {} replicas on {} devices, want 1 or {} for lengths on devices ({})",
        replicas, devices, devices, kWhere);
  }
  if (!OneOf(*config.device_context_length_dtype, {DType::kI32, DType::kI64})) {
    return InvalidInput("device_context_length_dtype: got {}, want i32 or i64 ({})",
                        Info(*config.device_context_length_dtype).name, kWhere);
  }
  return CheckCount(name, count, devices, "device");
}

Status CheckCounts(const DecoderInputs<InputSpec>& declared, const ArchConfig& config,
                   const BatchProcessorRuntime& runtime) {
  using enum DecoderField;
  const size_t devices = runtime.devices.size();
  if (declared.vision.has_value()) {
    RETURN_IF_ERROR(
        CheckCount({kVision, "embeddings"}, declared.vision->embeddings.size(), devices, "device"));
    RETURN_IF_ERROR(CheckCount({kVision, "indices"}, declared.vision->indices.size(), devices, "device"));
  }
  if (declared.signals.has_value()) {
    RETURN_IF_ERROR(CheckCount({.field = kSignals}, declared.signals->size(), devices, "device"));
  }
  if (declared.batch_context_lengths.has_value()) {
    RETURN_IF_ERROR(CheckContextLengths(declared.batch_context_lengths->size(), config, runtime));
  }
  if (declared.lora.has_value() && declared.lora->size() < 3) {
    return InvalidInput("lora: got {} leaves, want at least ids, group offsets and rows ({})",
                        declared.lora->size(), kWhere);
  }
  return {};
}

}  // namespace

Status CheckDeclaredInputs(const DecoderInputs<InputSpec>& declared, const ArchConfig& config,
                           const BatchProcessorRuntime& runtime) {
  RETURN_IF_ERROR(CheckWhenPresent(declared, config, runtime));
  RETURN_IF_ERROR(CheckCounts(declared, config, runtime));
  Status status;
  ForEachLeaf(declared, [&](const LeafName& name, const InputSpec& spec) {
    if (!status.has_value()) return;
    const bool known = spec.device.is_host() || std::find(runtime.devices.begin(), runtime.devices.end(),
                                                          spec.device) != runtime.devices.end();
    status = CheckLeaf(name, spec, config, runtime);
    if (status.has_value() && !known) {
      status = InvalidInput("{}: got device {}, want the host or one of {} devices ({})", ToString(name),
                            ToString(spec.device), runtime.devices.size(), kWhere);
    } else if (status.has_value() && spec.residence == Residence::kCarried && IsQuantized(spec.dtype)) {
      status = InvalidInput("{}: got dtype {} of a carried leaf, want plain elements ({})", ToString(name),
                            Info(spec.dtype).name, kWhere);
    } else if (status.has_value() && spec.shape.size() > kMaxInputRank) {
      status = InvalidInput("{}: got {} dimensions, want at most {} ({})", ToString(name), spec.shape.size(),
                            kMaxInputRank, kWhere);
    }
  });
  return status;
}

}  // namespace plumbline

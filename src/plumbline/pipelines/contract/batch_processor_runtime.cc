#include "plumbline/pipelines/contract/batch_processor_runtime.h"

#include <algorithm>
#include <limits>

namespace plumbline {
namespace {

constexpr int64_t kMostTokens = std::numeric_limits<uint32_t>::max();

Status CheckSizes(const BatchProcessorRuntime& runtime) {
  const std::pair<const char*, int64_t> sizes[] = {{"max_batch_size", runtime.max_batch_size},
                                                   {"max_seq_len", runtime.max_seq_len},
                                                   {"max_batch_input_tokens", runtime.max_batch_input_tokens},
                                                   {"data_parallel_degree", runtime.data_parallel_degree},
                                                   {"page_size", runtime.kv_params.page_size},
                                                   {"total_num_pages", runtime.kv_params.total_num_pages}};
  for (const auto& [name, size] : sizes) {
    if (size < 1 || size > kMostTokens) {
      return InvalidInput("{}: got {}, want 1 to {} (batch processor runtime)", name, size, kMostTokens);
    }
  }
  if (runtime.kv_params.lookup_padding < 0 || runtime.kv_params.lookup_padding > kMostTokens) {
    return InvalidInput("lookup_padding: got {}, want 0 to {} (batch processor runtime)",
                        runtime.kv_params.lookup_padding, kMostTokens);
  }
  return {};
}

// After CheckDevices, so that no product overflows: degrees are few, sizes below 2^32.
Status CheckStepTokens(const BatchProcessorRuntime& runtime) {
  if (runtime.MaxStepTokens() > kMostTokens) {
    return InvalidInput("tokens of a step: got up to {}, want at most {} (batch processor runtime)",
                        runtime.MaxStepTokens(), kMostTokens);
  }
  return {};
}

Status CheckDevices(const BatchProcessorRuntime& runtime) {
  const std::vector<DeviceRef>& devices = runtime.devices;
  if (devices.empty())
    return InvalidInput("devices: got none, want at least one rank (batch processor runtime)");
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].is_host())
      return InvalidInput("devices: got the host, want ranks (batch processor runtime)");
    if (std::find(devices.begin() + static_cast<std::ptrdiff_t>(i) + 1, devices.end(), devices[i]) !=
        devices.end()) {
      return InvalidInput("devices: got {} twice, want each once (batch processor runtime)",
                          ToString(devices[i]));
    }
  }
  if (devices.size() % runtime.data_parallel_degree != 0) {
    return InvalidInput(
        "data_parallel_degree: got {}, want a divisor of the {} devices (batch processor runtime)",
        runtime.data_parallel_degree, devices.size());
  }
  return {};
}

Status CheckSignals(const BatchProcessorRuntime& runtime) {
  const std::vector<InputTensor>& signals = runtime.signal_buffers;
  if (!signals.empty() && signals.size() != runtime.devices.size()) {
    return InvalidInput("signal_buffers: got {}, want one for each of {} devices (batch processor runtime)",
                        signals.size(), runtime.devices.size());
  }
  for (size_t i = 0; i < signals.size(); ++i) {
    if (signals[i].dtype != DType::kU8 || signals[i].shape.rank() != 1 ||
        signals[i].device != runtime.devices[i]) {
      return InvalidInput("signal_buffers: got {}, want u8 of rank 1 on {} (batch processor runtime)",
                          ToString(signals[i]), ToString(runtime.devices[i]));
    }
  }
  return {};
}

Status CheckShards(const BatchProcessorRuntime& runtime) {
  const auto& shards = runtime.kv_params.shards;
  if (shards.size() != static_cast<size_t>(runtime.data_parallel_degree)) {
    return InvalidInput("kv_params.shards: got {} replicas, want {} (batch processor runtime)", shards.size(),
                        runtime.data_parallel_degree);
  }
  for (const std::vector<DeviceRef>& replica : shards) {
    if (replica.empty()) {
      return InvalidInput(
          "kv_params.shards: got a replica without ranks, want at least one (batch processor runtime)");
    }
    for (DeviceRef device : replica) {
      if (std::find(runtime.devices.begin(), runtime.devices.end(), device) == runtime.devices.end()) {
        return InvalidInput("kv_params.shards: got {}, want one of the devices (batch processor runtime)",
                            ToString(device));
      }
    }
  }
  return {};
}

}  // namespace

int64_t BatchProcessorRuntime::MaxStepTokens() const {
  const int64_t budget = max_batch_input_tokens + (enable_chunked_prefill ? 0 : max_seq_len);
  // max_batch_size * max_seq_len, or more than any budget where that overflows.
  const int64_t all = max_batch_size > budget / max_seq_len ? budget : max_batch_size * max_seq_len;
  return data_parallel_degree * std::max(max_batch_size, std::min(budget, all));
}

Status CheckRuntime(const BatchProcessorRuntime& runtime) {
  RETURN_IF_ERROR(CheckSizes(runtime));
  RETURN_IF_ERROR(CheckDevices(runtime));
  RETURN_IF_ERROR(CheckStepTokens(runtime));
  RETURN_IF_ERROR(CheckSignals(runtime));
  return CheckShards(runtime);
}

}  // namespace plumbline

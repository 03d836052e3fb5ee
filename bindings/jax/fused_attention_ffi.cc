#include "bindings/jax/fused_attention_ffi.h"

#include <xla/ffi/api/ffi.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "bindings/jax/fused_attention_call.h"

namespace plumbline {
namespace {

namespace ffi = xla::ffi;

int PoolThreads() {
  const char* given = std::getenv("PLUMBLINE_THREADS");
  const int threads = given != nullptr ? std::atoi(given) : 0;
  return threads > 0 ? threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Calls fn(context) with the shared pool, or with a pool of the caller alone while that one is taken.
template <typename Fn>
Status WithContext(Fn&& fn) {
  const std::vector<Isa> isas = SupportedIsas();
  if (isas.empty()) return Failed("instruction sets: got neither AVX2 nor FMA, want both");
  // Never destroyed: XLA may still run a call while the process ends.
  static std::mutex& mutex = *new std::mutex;
  static ThreadPool& pool = *new ThreadPool(PoolThreads());
  const std::unique_lock lock(mutex, std::try_to_lock);
  if (lock.owns_lock()) return fn(KernelContext{pool, isas.back()});
  ThreadPool alone(1);
  return fn(KernelContext{alone, isas.back()});
}

ffi::Error ToFfi(const Status& status) {
  if (status.has_value()) return ffi::Error::Success();
  const bool invalid = status.error().code == ErrorCode::kInvalidInput;
  return {invalid ? ffi::ErrorCode::kInvalidArgument : ffi::ErrorCode::kInternal, status.error().message};
}

Result<std::vector<ffi::AnyBuffer>> ReadResults(ffi::RemainingRets rets, size_t count) {
  if (rets.size() != count) return InvalidInput("results: got {}, want {}", rets.size(), count);
  std::vector<ffi::AnyBuffer> results;
  for (size_t n = 0; n < count; ++n) {
    auto result = rets.get<ffi::AnyBuffer>(n);
    if (!result.has_value()) return InvalidInput("result {}: got {}", n, result.error().message());
    results.push_back(*result.value());
  }
  return results;
}

void* DataOrNull(const ffi::AnyBuffer& buffer) {
  return buffer.element_count() == 0 ? nullptr : buffer.untyped_data();
}

// The part of a result that belongs to a group; null where the result is empty.
void* OfGroup(const ffi::AnyBuffer& buffer, int64_t group) {
  if (buffer.element_count() == 0) return nullptr;
  const auto bytes = static_cast<int64_t>(buffer.size_bytes()) / buffer.dimensions()[0];
  return static_cast<char*>(buffer.untyped_data()) + group * bytes;
}

Status Forward(ffi::RemainingArgs arguments, ffi::RemainingRets rets, ffi::Dictionary attributes) {
  ASSIGN_OR_RETURN(const auto call, FusedAttentionCall::Read(arguments, attributes));
  ASSIGN_OR_RETURN(const auto results, ReadResults(rets, 3));
  const FusedAttentionShape& s = call.shape();
  return WithContext([&](const KernelContext& context) -> Status {
    for (int64_t n = 0; n < call.groups(); ++n) {
      FusedTokenPair tokens;
      ASSIGN_OR_RETURN(const FusedAttentionInputs inputs, call.Inputs(n, &tokens));
      RETURN_IF_ERROR(FusedAttention(context, s, call.Options(n), inputs,
                                     {.out = DenseResult(DataOrNull(results[0]), call.result_dtype(), s, n,
                                                         s.q_tokens, 1, 0, s.heads, s.v_dim),
                                      .lse = static_cast<float*>(OfGroup(results[1], n)),
                                      .max_logit = static_cast<float*>(OfGroup(results[2], n))}));
    }
    return {};
  });
}

Status Backward(ffi::RemainingArgs arguments, ffi::RemainingRets rets, ffi::Dictionary attributes) {
  ASSIGN_OR_RETURN(const auto call, FusedAttentionCall::Read(arguments, attributes));
  const int packed = call.packed();
  const size_t arrays = 4 - packed;
  ASSIGN_OR_RETURN(const auto results, ReadResults(rets, arrays + 2));
  const FusedAttentionShape& s = call.shape();
  const auto gradient = [&](int64_t n, int which, int64_t tokens, int64_t heads, int64_t dim) {
    const int array = packed == 3 ? 0 : std::min(which, static_cast<int>(arrays) - 1);
    const int members = array == static_cast<int>(arrays) - 1 ? packed : 1;
    return DenseResult(DataOrNull(results[array]), call.result_dtype(), s, n, tokens, members, which - array,
                       heads, dim);
  };
  return WithContext([&](const KernelContext& context) -> Status {
    for (int64_t n = 0; n < call.groups(); ++n) {
      FusedTokenPair tokens;
      ASSIGN_OR_RETURN(const FusedAttentionInputs inputs, call.Inputs(n, &tokens));
      const FusedAttentionSaved saved = {
          .out = call.Dense(FfiOperand::kOut, n, s.q_tokens, s.heads, s.v_dim),
          .d_out = call.Dense(FfiOperand::kDOut, n, s.q_tokens, s.heads, s.v_dim),
          .lse = call.Floats(FfiOperand::kLse, n)};
      RETURN_IF_ERROR(FusedAttentionGrad(context, s, call.Options(n), inputs, saved,
                                         {.dq = gradient(n, 0, s.q_tokens, s.heads, s.qk_dim),
                                          .dk = gradient(n, 1, s.kv_tokens, s.kv_heads, s.qk_dim),
                                          .dv = gradient(n, 2, s.kv_tokens, s.kv_heads, s.v_dim),
                                          .d_bias = OfGroup(results[arrays], n),
                                          .d_sink = static_cast<float*>(OfGroup(results[arrays + 1], n))}));
    }
    return {};
  });
}

}  // namespace

XLA_FFI_Error* FusedAttentionForwardHandler(XLA_FFI_CallFrame* frame) {
  static const auto& handler =
      *ffi::Ffi::Bind()
           .RemainingArgs()
           .RemainingRets()
           .Attrs()
           .To([](ffi::RemainingArgs arguments, ffi::RemainingRets rets, ffi::Dictionary attributes) {
             return ToFfi(Forward(arguments, rets, attributes));
           })
           .release();
  return handler.Call(frame);
}

XLA_FFI_Error* FusedAttentionBackwardHandler(XLA_FFI_CallFrame* frame) {
  static const auto& handler =
      *ffi::Ffi::Bind()
           .RemainingArgs()
           .RemainingRets()
           .Attrs()
           .To([](ffi::RemainingArgs arguments, ffi::RemainingRets rets, ffi::Dictionary attributes) {
             return ToFfi(Backward(arguments, rets, attributes));
           })
           .release();
  return handler.Call(frame);
}

}  // namespace plumbline

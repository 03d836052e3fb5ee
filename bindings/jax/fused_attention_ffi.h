// The XLA FFI handlers of fused attention for the CPU. Operands: fused_attention_call.h. Results, all with
// the leading dimension of N groups:
//
//   forward   out [B, Sq, heads, Dv]; lse [B, heads, Sq] (f32); max_logit [heads] (f32), or empty: not asked
//   for backward  the gradients of q, k, v, packed as those are (3, 2 or 1 arrays); of bias, or empty; of
//   sink, or
//             empty (f32)
//
// Attributes: scale, dropout (f32); causal, bottom_right, float32_results (bool); left, right, bias_type,
// softmax, max_segments (i64).
//
// A call works on the threads of one pool of the process (PLUMBLINE_THREADS, all of the machine's by default)
// if the pool is idle, and alone if another call has it: several devices of one process call at once. The
// bits do not depend on it.
#pragma once

#include <xla/ffi/api/c_api.h>

namespace plumbline {

XLA_FFI_Error* FusedAttentionForwardHandler(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* FusedAttentionBackwardHandler(XLA_FFI_CallFrame* frame);

}  // namespace plumbline

// Paged ragged attention, prefill and decode in one kernel family (numerics contract, section 4).
//
// For query row at absolute position p of sequence b, and query head h of KV head g = h / (heads / kv_heads):
//
//   s_j = softcap(scale * dot(q, k_j)),   allowed keys j: max(0, p - window + 1) <= j <= p
//   max_logit[b, h] = max over rows and allowed keys of s_j (before the sink), accumulated into what is there
//   out = sum_j exp(s_j - m) v_j / (sum_j exp(s_j - m) + exp(sink_h - m))
//
// computed block by block of 64 keys at absolute positions and merged by the dyadic tree, so a row's result
// depends on its own allowed keys only: not on chunking, batch, threads, instruction set, or what else the
// pages hold, NaN included. attention_twin.h has every operation, in order. A row without weight (no allowed
// key, or only scores of -inf) gives zeros; a NaN score makes its row and maximum NaN; a maximum of zero is
// +0.
#pragma once

#include <cstdint>
#include <span>

#include "plumbline/kernels/attention/kv_layout.h"
#include "plumbline/kernels/kernel_context.h"
#include "plumbline/tensor/matrix.h"

namespace plumbline {

// The sequences of one step. Sequence b has rows [row_offsets[b], row_offsets[b + 1]) at absolute positions
// cache_lengths[b], cache_lengths[b] + 1, ...; its page i holds positions [i * page_size, (i + 1) *
// page_size).
struct PagedBatch {
  std::span<const int32_t> row_offsets;    // [B + 1]
  std::span<const int32_t> cache_lengths;  // [B] tokens in the cache before this step
  std::span<void* const* const> pages;     // [B] -> page pointers of that sequence
};

// Rounds k, v [tokens, kv_heads * head_dim] to the compute type and stores them at their positions. The first
// token of a block zeroes the rest of it, so that a block never holds another request's values. Tokens whose
// page pointer is null lie on another rank and are skipped.
void StoreKv(const KernelContext& context, const KvLayout& layout, const PagedBatch& batch, int64_t layer,
             MatrixView<const float> k, MatrixView<const float> v);

struct AttentionOptions {
  float scale = 1.0f;
  int32_t window = 0;            // keys a row may see, itself included; 0: no limit
  float softcap = 0.0f;          // x <- softcap * tanh(x / softcap) after the scale; 0: none
  const float* sinks = nullptr;  // [heads] or null
  float* max_logit = nullptr;    // [B, heads] or null; start it at -inf
};

// q [tokens, heads * head_dim] after rotary; out the same shape, not overlapping q. This step's keys are
// already stored.
void Attention(const KernelContext& context, const KvLayout& layout, const PagedBatch& batch, int64_t layer,
               int64_t heads, MatrixView<const float> q, const AttentionOptions& options,
               MatrixView<float> out);

}  // namespace plumbline

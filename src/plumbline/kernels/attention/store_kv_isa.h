// Writing keys and values into one cache block (kv_layout.h), for *_isa.cc files.
#pragma once

#include "plumbline/kernels/attention/attention_kernels.h"
#include "plumbline/kernels/simd/vec16.h"

namespace plumbline::PLUMBLINE_ISA {

static inline int StoreKvLanes(int64_t left) { return left < 16 ? static_cast<int>(left) : 16; }

static void ZeroWords(uint32_t* words, int64_t count) {
  for (int64_t i = 0; i < count; ++i) words[i] = 0;
}

static inline I32x16 LoadOldWords(const uint32_t* p, int lanes) {
  return AsI32(LoadN(reinterpret_cast<const float*>(p), lanes));
}

static inline void StoreWords(uint32_t* p, I32x16 words, int lanes) {
  StoreN(reinterpret_cast<float*>(p), AsF32(words), lanes);
}

static void StoreKBf16(const KvBlockTokens& t, uint32_t* k_part, uint32_t* scratch) {
  const int64_t stride = RoundUp16(t.head_dim), pairs = (t.head_dim + 1) / 2;
  for (int i = 0; i < t.count; ++i) {
    for (int64_t d = 0; d < t.head_dim; d += 16) {
      StoreI(scratch + i * stride + d,
             Bf16Bits(LoadN(t.k + i * t.k_stride + d, StoreKvLanes(t.head_dim - d))));
    }
  }
  for (int64_t pair = 0; pair < pairs; ++pair) {
    uint32_t* to = k_part + pair * 64 + t.first;
    const uint32_t* from = scratch + 2 * pair;
    for (int i = 0; i < t.count; ++i) to[i] = from[i * stride] << 16 | from[i * stride + 1];
  }
}

// Two keys share a word: one that is not among the tokens keeps its half.
static void StoreVBf16(const KvBlockTokens& t, uint32_t* v_part) {
  const int end = t.first + t.count;
  for (int pair = t.first / 2; pair <= (end - 1) / 2; ++pair) {
    const bool has_even = 2 * pair >= t.first, has_odd = 2 * pair + 1 < end;
    for (int64_t d = 0; d < t.head_dim; d += 16) {
      const int lanes = StoreKvLanes(t.head_dim - d);
      uint32_t* to = v_part + pair * t.head_dim + d;
      const float* even = t.v + d + (2 * pair - t.first) * t.v_stride;
      const float* odd = t.v + d + (2 * pair + 1 - t.first) * t.v_stride;
      // Reading a page of memory that nothing was written to yet costs a page fault of its own.
      const I32x16 old = has_even && has_odd ? SetI(0) : LoadOldWords(to, lanes);
      const I32x16 high = has_even ? ShiftLeft<16>(Bf16Bits(LoadN(even, lanes)))
                                   : old & SetI(static_cast<int32_t>(0xffff0000u));
      const I32x16 low = has_odd ? Bf16Bits(LoadN(odd, lanes)) : old & SetI(0x0000ffff);
      StoreWords(to, high | low, lanes);
    }
  }
}

static void StoreKvBf16(const KvBlockTokens& t, uint32_t* scratch) {
  const int64_t part = (t.head_dim + 1) / 2 * 64;
  auto* block = static_cast<uint32_t*>(t.block);
  if (t.first == 0 && t.count < 64) ZeroWords(block, 2 * part);
  StoreKBf16(t, block, scratch);
  StoreVBf16(t, block + part);
}

static void StoreKvF32(const KvBlockTokens& t, uint32_t*) {
  const int64_t part = t.head_dim * 64;
  if (t.first == 0 && t.count < 64) ZeroWords(static_cast<uint32_t*>(t.block), 2 * part);
  float* k_part = static_cast<float*>(t.block) + t.first;
  float* v_part = static_cast<float*>(t.block) + part + t.first * t.head_dim;
  for (int64_t d = 0; d < t.head_dim; ++d) {
    for (int i = 0; i < t.count; ++i) k_part[d * 64 + i] = t.k[i * t.k_stride + d];
  }
  for (int i = 0; i < t.count; ++i) {
    for (int64_t d = 0; d < t.head_dim; ++d) v_part[i * t.head_dim + d] = t.v[i * t.v_stride + d];
  }
}

}  // namespace plumbline::PLUMBLINE_ISA

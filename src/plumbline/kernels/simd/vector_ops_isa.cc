#include "plumbline/kernels/simd/vec16.h"
#include "plumbline/kernels/simd/vector_ops.h"
#include "plumbline/kernels/simd/vmath.h"

namespace plumbline::PLUMBLINE_ISA {
namespace {

struct Operands {
  I32x16 ia, ib, ic;
  F32x16 a, b, c;
};

I32x16 MaskLanes(Mask16 m) { return SelectI(m, SetI(-1), SetI(0)); }

// The mask's bits, one a lane, through Bits() rather than through a blend.
I32x16 BitLanes(Mask16 m) {
  alignas(64) int32_t lane[16];
  for (int i = 0; i < 16; ++i) lane[i] = (Bits(m) >> i & 1) != 0 ? -1 : 0;
  return LoadI(lane);
}

template <typename Fn>
void Map(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* out, int64_t n, Fn fn) {
  for (int64_t i = 0; i < n; i += 16) {
    const I32x16 ia = LoadI(a + i);
    const I32x16 ib = LoadI(b + i);
    const I32x16 ic = LoadI(c + i);
    StoreI(out + i, fn(Operands{ia, ib, ic, AsF32(ia), AsF32(ib), AsF32(ic)}));
  }
}

// A captureless `expression` of the operands `v`, as an entry of the table.
#define PLUMBLINE_VECTOR_OP(name, expression)                                                     \
  {                                                                                               \
    name, [](const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* out, int64_t n) { \
      Map(a, b, c, out, n, [](const Operands& v) { return expression; });                         \
    }                                                                                             \
  }

// out = the first b[i] % 17 lanes of a, zeros after them; reads no further.
void RunLoadN(const uint32_t* a, const uint32_t* b, const uint32_t*, uint32_t* out, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) {
    const int count = static_cast<int>(b[i] % 17);
    StoreI(out + i, AsI32(LoadN(reinterpret_cast<const float*>(a + i), count)));
  }
}

// Writes the first b[i] % 17 lanes of a to out and leaves the rest of out as it was.
void RunStoreN(const uint32_t* a, const uint32_t* b, const uint32_t*, uint32_t* out, int64_t n) {
  for (int64_t i = 0; i < n; i += 16) {
    const int count = static_cast<int>(b[i] % 17);
    StoreN(reinterpret_cast<float*>(out + i), AsF32(LoadI(a + i)), count);
  }
}

// Each block of sixteen outputs widens the first bytes of the same block of a.
template <typename Fn>
void Widen(const uint32_t* a, uint32_t* out, int64_t n, Fn fn) {
  for (int64_t i = 0; i < n; i += 16) StoreI(out + i, fn(a + i));
}

#define PLUMBLINE_WIDEN_OP(name, expression)                                                  \
  {                                                                                           \
    name, [](const uint32_t* a, const uint32_t*, const uint32_t*, uint32_t* out, int64_t n) { \
      Widen(a, out, n, [](const uint32_t* p) { return expression; });                         \
    }                                                                                         \
  }

const VectorOp kOps[] = {
    {"load_n", RunLoadN},
    {"store_n", RunStoreN},
    PLUMBLINE_WIDEN_OP("widen_u8", WidenU8(p)),
    PLUMBLINE_WIDEN_OP("widen_i8", WidenI8(p)),
    PLUMBLINE_WIDEN_OP("widen_u16", WidenU16(p)),
    PLUMBLINE_WIDEN_OP("widen_f16", AsI32(WidenF16(p))),
    PLUMBLINE_VECTOR_OP("add", AsI32(v.a + v.b)),
    PLUMBLINE_VECTOR_OP("subtract", AsI32(v.a - v.b)),
    PLUMBLINE_VECTOR_OP("multiply", AsI32(v.a* v.b)),
    PLUMBLINE_VECTOR_OP("divide", AsI32(v.a / v.b)),
    PLUMBLINE_VECTOR_OP("fma", AsI32(Fma(v.a, v.b, v.c))),
    PLUMBLINE_VECTOR_OP("fnma", AsI32(Fnma(v.a, v.b, v.c))),
    PLUMBLINE_VECTOR_OP("sqrt", AsI32(Sqrt(v.a))),
    PLUMBLINE_VECTOR_OP("max", AsI32(MaxPs(v.a, v.b))),
    PLUMBLINE_VECTOR_OP("min", AsI32(MinPs(v.a, v.b))),
    PLUMBLINE_VECTOR_OP("max_nan", AsI32(MaxNan(v.a, v.b))),
    PLUMBLINE_VECTOR_OP("less", MaskLanes(v.a < v.b)),
    PLUMBLINE_VECTOR_OP("greater", MaskLanes(v.a > v.b)),
    PLUMBLINE_VECTOR_OP("equal", BitLanes(v.a == v.b)),
    PLUMBLINE_VECTOR_OP("is_nan", BitLanes(IsNan(v.a))),
    PLUMBLINE_VECTOR_OP("mask_and", MaskLanes((v.a < v.b) & (v.a < v.c))),
    PLUMBLINE_VECTOR_OP("mask_or", MaskLanes((v.a < v.b) | (v.a < v.c))),
    PLUMBLINE_VECTOR_OP("mask_not", BitLanes(~(v.a < v.b))),
    PLUMBLINE_VECTOR_OP("select", AsI32(Select(v.a < v.b, v.b, v.c))),
    PLUMBLINE_VECTOR_OP("add_int", v.ia + v.ib),
    PLUMBLINE_VECTOR_OP("subtract_int", v.ia - v.ib),
    PLUMBLINE_VECTOR_OP("and", v.ia& v.ib),
    PLUMBLINE_VECTOR_OP("or", v.ia | v.ib),
    PLUMBLINE_VECTOR_OP("xor", v.ia ^ v.ib),
    PLUMBLINE_VECTOR_OP("shift_left_5", ShiftLeft<5>(v.ia)),
    PLUMBLINE_VECTOR_OP("shift_right_5", ShiftRight<5>(v.ia)),
    PLUMBLINE_VECTOR_OP("shift_right_arith_5", ShiftRightArith<5>(v.ia)),
    PLUMBLINE_VECTOR_OP("equal_int", MaskLanes(EqualI(v.ia, v.ib))),
    PLUMBLINE_VECTOR_OP("select_int", SelectI(EqualI(v.ia, v.ib), v.ib, v.ic)),
    PLUMBLINE_VECTOR_OP("to_f32", AsI32(ToF32(v.ia))),
    PLUMBLINE_VECTOR_OP("round_to_i32", RoundToI32(v.a)),
    PLUMBLINE_VECTOR_OP("round", AsI32(Round(v.a))),
    PLUMBLINE_VECTOR_OP("pair_high", AsI32(PairHigh(v.ia))),
    PLUMBLINE_VECTOR_OP("pair_low", AsI32(PairLow(v.ia))),
    PLUMBLINE_VECTOR_OP("dot_pairs", AsI32(DotPairs(v.c, v.ia, v.ib))),
    PLUMBLINE_VECTOR_OP("bf16_bits", Bf16Bits(v.a)),
    PLUMBLINE_VECTOR_OP("pack_pairs", PackPairs(v.a, v.b)),
    PLUMBLINE_VECTOR_OP("tree_sum", AsI32(Set(TreeSum(v.a)))),
    PLUMBLINE_VECTOR_OP("max_lane", AsI32(Set(MaxLane(v.a)))),
    PLUMBLINE_VECTOR_OP("exp", AsI32(Exp(v.a))),
    PLUMBLINE_VECTOR_OP("log", AsI32(Log(v.a))),
    PLUMBLINE_VECTOR_OP("tanh", AsI32(Tanh(v.a))),
};

}  // namespace

const VectorOps kVectorOps = {kOps, sizeof(kOps) / sizeof(kOps[0])};

}  // namespace plumbline::PLUMBLINE_ISA

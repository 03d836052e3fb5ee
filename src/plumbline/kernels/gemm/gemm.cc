#include "plumbline/kernels/gemm/gemm.h"

#include <algorithm>
#include <atomic>

#include "plumbline/base/check.h"
#include "plumbline/kernels/gemm/gemm_kernels.h"
#include "plumbline/kernels/gemm/gemm_plan.h"
#include "plumbline/kernels/share_runs.h"

namespace plumbline {
namespace {

struct Kernels {
  const TileKernels& tiles;
  const QuantKernels& quant;
  const QuadKernels& quads;
  const ActivationKernels& activations;
};

// vpdpbusd comes with the instruction set that adds bf16; a machine with both may still multiply float32
// faster than bf16 (FastestIsa), never bytes.
const QuadKernels& QuadKernelsOf512() {
  static const bool has_vnni = SupportedIsas().back() == Isa::kAvx512Bf16;
  return has_vnni ? isa_avx512_bf16::kQuadKernels : isa_avx512::kQuadKernels;
}

Kernels KernelsOf(Isa isa) {
  switch (isa) {
    case Isa::kAvx512Bf16:
      return {isa_avx512_bf16::kTileKernels, isa_avx512_bf16::kQuantKernels, QuadKernelsOf512(),
              isa_avx512_bf16::kActivations};
    case Isa::kAvx512:
      return {isa_avx512::kTileKernels, isa_avx512::kQuantKernels, QuadKernelsOf512(),
              isa_avx512::kActivations};
    case Isa::kAvx2:
      break;
  }
  return {isa_avx2::kTileKernels, isa_avx2::kQuantKernels, isa_avx2::kQuadKernels, isa_avx2::kActivations};
}

int64_t EvenK(int64_t k) { return (k + 1) / 2 * 2; }

// 4-byte words of one packed row.
int64_t RowWords(Isa isa, Compute compute, int64_t k) {
  if (compute == Compute::kInt8) return k / 32 * kQuadWords;
  return UsesPairs(isa, compute) ? EvenK(k) / 2 : EvenK(k);
}

int64_t ScratchBytes(int64_t k) { return EvenK(k) * kPanel * static_cast<int64_t>(sizeof(float)); }

// Of one panel: with more of them, what the first one waits for memory is little beside what all compute.
constexpr int64_t kManyTiles = 24;

// Everything one thread needs to compute blocks of one job.
class BlockRunner {
 public:
  BlockRunner(const PackedActivations& x, const PackedWeight& weight, const TilePlan& plan, void* scratch)
      : x_(x),
        weight_(weight),
        plan_(plan),
        scratch_(scratch),
        kernels_(KernelsOf(x.isa())),
        groups_(MakeRowGroups(x.isa(), x.m())),
        row_words_(RowWords(x.isa(), weight.compute(), x.k())) {}

  // Rows [row_begin, row_end) and columns [col_begin, col_end); y, bias and accumulate as in GemmJob, y's
  // first element being that of (row_begin, col_begin), bias's that of col_begin.
  void Run(int64_t row_begin, int64_t row_end, int64_t col_begin, int64_t col_end, MatrixView<float> y,
           const float* bias, bool accumulate) const {
    TileArgs args = {};
    args.k = EvenK(weight_.k());
    args.leaf = weight_.leaf();
    args.y_stride = y.stride;
    args.accumulate = accumulate;
    const int64_t panel_end = (col_end + kPanel - 1) / kPanel;
    int64_t panels = 1;
    for (int64_t panel = col_begin / kPanel; panel < panel_end; panel += panels) {
      panels = std::min<int64_t>(plan_.Panels(), panel_end - panel);
      const int64_t column = panel * kPanel;
      args.columns = std::min(col_end, column + panels * kPanel) - column;
      args.bias = bias == nullptr ? nullptr : bias + (column - col_begin);
      args.w = weight_.Panel(panel);
      args.panel_stride = weight_.panel_bytes();
      if (plan_.in_scratch) DecodePanel(args);
      AskAhead(row_begin, row_end, panels, weight_.Panel(panel + panels), args);
      RunRows(row_begin, row_end, panels, y.data + (column - col_begin), args);
    }
  }

 private:
  void DecodePanel(TileArgs& args) const {
    if (weight_.compute() != Compute::kInt8) {
      Decoder()(args.w, weight_.k(), scratch_);
      args.w = scratch_;
    } else if (const DecodeFn decode = kernels_.quads.decode[static_cast<int>(weight_.format())]) {
      decode(args.w, weight_.k(), scratch_);
      args.decoded = scratch_;
    }
  }

  int64_t Steps() const { return EvenK(weight_.k()) / 2; }  // of a tile that asks ahead

  // The tiles of these rows share the asking for the panels from `next` on.
  void AskAhead(int64_t row_begin, int64_t row_end, int64_t panels, const void* next, TileArgs& args) const {
    const int64_t groups = groups_.IndexOf(row_end - 1) - groups_.IndexOf(row_begin) + 1;
    const int64_t tiles = groups * ((2 * panels + plan_.vectors - 1) / plan_.vectors);
    // A tile alone reads what comes next itself, one of floats counts no steps.
    const bool asks = Kind() != TileKind::kFloats && tiles > 1 && tiles <= kManyTiles;
    args.ahead = asks ? next : nullptr;
    args.ahead_every = std::max<int64_t>(1, tiles * Steps() * kAheadBytes / (panels * weight_.panel_bytes()));
  }

  bool Pairs() const { return UsesPairs(x_.isa(), weight_.compute()); }

  TileKind Kind() const {
    if (Pairs()) return TileKind::kPairs;
    const bool widened = weight_.format() == PackedFormat::kBf16 && !plan_.in_scratch;
    return widened ? TileKind::kWidened : TileKind::kFloats;
  }

  DecodeFn Decoder() const {
    DecodeTarget target = DecodeTarget::kFloats;
    if (Pairs()) {
      target = DecodeTarget::kPairs;
    } else if (weight_.compute() == Compute::kBf16) {
      constexpr DecodeTarget kTargets[] = {DecodeTarget::kRounded, DecodeTarget::kRoundedPlain,
                                           DecodeTarget::kRoundedExact};
      target = kTargets[static_cast<int>(weight_.decoding())];
    }
    return kernels_.quant.decode[static_cast<int>(target)][static_cast<int>(weight_.format())]
                                [static_cast<int>(weight_.order())];
  }

  TileFn RegisterTile(int64_t rows) const {
    const auto format = static_cast<int>(weight_.format());
    if (weight_.compute() == Compute::kInt8) {
      const TileFn decoded = plan_.in_scratch ? kernels_.quads.decoded[format][rows - 1] : nullptr;
      return decoded != nullptr ? decoded : kernels_.quads.tile[format][rows - 1];
    }
    if (Pairs()) return kernels_.quant.pairs[format][rows - 1];
    if (weight_.compute() == Compute::kF32) return kernels_.quant.floats[format][rows - 1];
    const bool exact = weight_.decoding() == Decoding::kExact;
    return (exact ? kernels_.quant.exact : kernels_.quant.rounded)[format][rows - 1];
  }

  // Tiles of one group of rows after the other.
  void RunRows(int64_t row_begin, int64_t row_end, int64_t panels, float* y, TileArgs& args) const {
    const auto* words = static_cast<const uint32_t*>(x_.Data(weight_.compute()));
    int64_t index = groups_.IndexOf(row_begin);
    for (int64_t row = row_begin; row < row_end;) {
      const RowGroups::Group group = groups_.At(index);
      const int64_t left = std::min(row_end, group.begin + group.rows) - row;
      int64_t rows = left;
      if (left > plan_.rows) {
        const int64_t tiles = (left + plan_.rows - 1) / plan_.rows;
        rows = (left + tiles - 1) / tiles;
      }
      const int64_t row_step = weight_.compute() == Compute::kInt8 ? kQuadWords : 1;
      args.x = words + group.begin * row_words_ + (row - group.begin) * row_step;
      args.x_stride = group.rows;
      args.y = y + (row - row_begin) * args.y_stride;
      RunTile(rows, panels, args);
      row += rows;
      if (row == group.begin + group.rows) ++index;
    }
  }

  // The widest tiles that exist for this many rows, side by side. They share `args`, which end as they began:
  // a copy made of fields just written would wait until the last tile's results have left for memory.
  void RunTile(int64_t rows, int64_t panels, TileArgs& args) const {
    if (plan_.in_registers) {
      RegisterTile(rows)(args);
      return;
    }
    const auto& tiles = kernels_.tiles.tile[static_cast<int>(Kind())][rows - 1];
    const auto* const w = static_cast<const char*>(args.w);
    float* const y = args.y;
    const float* const bias = args.bias;
    const int64_t columns = args.columns;
    for (int64_t half = 0; half < 2 * panels && 16 * half < columns;) {
      int64_t vectors = std::min<int64_t>(plan_.vectors, 2 * panels - half);
      while (tiles[vectors] == nullptr) --vectors;
      args.w = w + half / 2 * args.panel_stride + half % 2 * 64;
      args.y = y + half * 16;
      args.columns = columns - half * 16;
      args.bias = bias == nullptr ? nullptr : bias + half * 16;
      tiles[vectors](args);
      if (args.ahead != nullptr)
        args.ahead = static_cast<const char*>(args.ahead) + Steps() / args.ahead_every * kAheadBytes;
      half += vectors;
    }
    args.w = w;
    args.y = y;
    args.columns = columns;
    args.bias = bias;
  }

  const PackedActivations& x_;
  const PackedWeight& weight_;
  const TilePlan plan_;
  void* const scratch_;
  const Kernels kernels_;
  const RowGroups groups_;
  const int64_t row_words_;
};

PanelForm FormOf(const PackedActivations& x, const PackedWeight& weight) {
  if (weight.compute() == Compute::kInt8) return PanelForm::kQuads;
  const bool pairs = UsesPairs(x.isa(), weight.compute());
  if (weight.format() == PackedFormat::kF32) return PanelForm::kReady;
  if (weight.format() == PackedFormat::kBf16) return pairs ? PanelForm::kReady : PanelForm::kWidened;
  if (pairs) return weight.order() == PanelOrder::kPairs ? PanelForm::kRegisters : PanelForm::kDecoded;
  const bool decodable = weight.decoding() != Decoding::kAny || weight.compute() == Compute::kF32;
  return weight.order() == PanelOrder::kColumns && decodable ? PanelForm::kRegisters : PanelForm::kDecoded;
}

GemmShape ShapeOf(const PackedActivations& x, int64_t rows, PanelForm form) {
  const bool pairs =
      form != PanelForm::kQuads && x.Holds(Compute::kBf16) && UsesPairs(x.isa(), Compute::kBf16);
  return {x.isa(), pairs, form, rows, x.k()};
}

// run(begin, end, thread) for all units.
template <typename Fn>
void HandOut(ThreadPool& pool, int64_t units, int64_t longest_run, const Fn& run) {
  if (longest_run > 1) return ShareRuns(pool, units, run, longest_run);
  pool.ParallelFor(units, [&](int64_t i, int thread) { run(i, i + 1, thread); });
}

// Grows, never shrinks.
Status Grow(Buffer& buffer, int64_t bytes) {
  if (buffer.bytes() >= bytes) return {};
  buffer = Buffer();
  ASSIGN_OR_RETURN(buffer, Buffer::Allocate(bytes));
  return {};
}

}  // namespace

Status PackedActivations::Reserve(const KernelContext& context, int64_t values, int64_t k, Compute compute) {
  if (compute == Compute::kInt8)
    RETURN_IF_ERROR(Grow(quads_, values / 32 * kQuadWords * static_cast<int64_t>(sizeof(uint32_t))));
  RETURN_IF_ERROR(Grow(buffer_, values * static_cast<int64_t>(sizeof(uint32_t))));
  return Grow(scratch_, context.pool.threads() * ScratchBytes(k));
}

Status PackedActivations::Pack(const KernelContext& context, MatrixView<const float> x, Compute compute) {
  return Pack(context, x, std::span<const Compute>(&compute, 1));
}

Status PackedActivations::Pack(const KernelContext& context, MatrixView<const float> x,
                               std::span<const Compute> computes) {
  m_ = x.rows;
  k_ = x.cols;
  isa_ = context.isa;
  floats_.reset();
  integers_ = false;
  RETURN_IF_ERROR(Grow(scratch_, context.pool.threads() * ScratchBytes(k_)));
  for (const Compute compute : computes) {
    if (Holds(compute)) continue;
    PLUMBLINE_CHECK(compute == Compute::kInt8 ? k_ % 32 == 0 : !floats_.has_value());
    RETURN_IF_ERROR(PackForm(context, x, compute));
  }
  return {};
}

Status PackedActivations::PackForm(const KernelContext& context, MatrixView<const float> x, Compute compute) {
  const ActivationKernels& kernels = KernelsOf(isa_).activations;
  Buffer& buffer = compute == Compute::kInt8 ? quads_ : buffer_;
  PackRowsFn pack = kernels.to_quads;
  if (compute == Compute::kInt8) {
    integers_ = true;
  } else {
    floats_ = compute;
    pack = compute == Compute::kF32   ? kernels.to_floats
           : UsesPairs(isa_, compute) ? kernels.to_pairs
                                      : kernels.to_rounded;
  }
  const int64_t row_words = RowWords(isa_, compute, k_);
  RETURN_IF_ERROR(Grow(buffer, m_ * row_words * static_cast<int64_t>(sizeof(uint32_t))));
  if (m_ == 0 || k_ == 0) return {};
  const RowGroups groups = MakeRowGroups(isa_, m_);
  context.pool.ParallelFor(groups.groups, [&](int64_t g, int) {
    const RowGroups::Group group = groups.At(g);
    pack(x.Row(group.begin), x.stride, group.rows, k_,
         static_cast<uint32_t*>(buffer.data()) + group.begin * row_words);
  });
  return {};
}

void Gemm(const KernelContext& context, const PackedActivations& x, std::span<const GemmJob> jobs) {
  PLUMBLINE_CHECK(x.isa() == context.isa);
  PLUMBLINE_CHECK(x.scratch_.bytes() >= context.pool.threads() * ScratchBytes(x.k()));
  int64_t panels = 0;
  PanelForm form = PanelForm::kReady;  // of the jobs, the one with the narrowest tiles
  for (const GemmJob& job : jobs) {
    PLUMBLINE_CHECK(job.weight->k() == x.k() && x.Holds(job.weight->compute()));
    PLUMBLINE_CHECK(job.y.rows == x.m() && job.y.cols == job.weight->n());
    panels += job.weight->panels();
    form = std::max(form, FormOf(x, *job.weight));
  }
  if (x.m() == 0 || panels == 0) return;

  const GemmShape shape = ShapeOf(x, x.m(), form);
  const WorkPlan work = ChooseWork(shape, ChooseTile(shape), panels, context.pool.threads());
  const auto units_of = [&](const GemmJob& job) {
    return (job.weight->panels() + work.unit_panels - 1) / work.unit_panels;
  };
  int64_t units = 0;
  for (const GemmJob& job : jobs) units += units_of(job);
  // Blocks of rows part where groups do.
  const RowGroups groups = MakeRowGroups(x.isa(), x.m());
  const auto first_row = [&](int64_t block) {
    if (block * work.row_block >= x.m()) return x.m();
    return groups.At(groups.IndexOf(block * work.row_block)).begin;
  };
  // Units [begin, end) of one job.
  const auto run = [&](const GemmJob& job, int64_t begin, int64_t end, int64_t row_block, int thread) {
    const int64_t row_begin = first_row(row_block), row_end = first_row(row_block + 1);
    const int64_t col_begin = begin * work.unit_panels * kPanel;
    const int64_t col_end = std::min(job.weight->n(), end * work.unit_panels * kPanel);
    // The scratch is this object's own; it is const only in what it holds.
    auto* scratch = static_cast<char*>(const_cast<void*>(x.scratch_.data())) + thread * ScratchBytes(x.k());
    const TilePlan tile = ChooseTile(ShapeOf(x, x.m(), FormOf(x, *job.weight)));
    BlockRunner(x, *job.weight, tile, scratch)
        .Run(row_begin, row_end, col_begin, col_end,
             MatrixView<float>(job.y.Row(row_begin) + col_begin, row_end - row_begin, col_end - col_begin,
                               job.y.stride),
             job.bias == nullptr ? nullptr : job.bias + col_begin, job.accumulate);
  };
  // Row blocks outermost: a block's activations stay in the cache while every panel streams past.
  const int64_t row_blocks = (x.m() + work.row_block - 1) / work.row_block;
  const auto run_all = [&](int64_t begin, int64_t end, int thread) {
    for (int64_t block = begin / units; block * units < end; ++block) {
      int64_t first = block * units;  // of the job
      for (const GemmJob& job : jobs) {
        const int64_t here = units_of(job);
        const int64_t from = std::max(begin - first, int64_t{0}), to = std::min(end - first, here);
        if (from < to) run(job, from, to, block, thread);
        first += here;
      }
    }
  };
  HandOut(context.pool, units * row_blocks, work.longest_run, run_all);
}

void GemmBlock(Isa isa, const PackedActivations& x, int64_t row_begin, int64_t row_end,
               const PackedWeight& weight, int64_t col_begin, int64_t col_end, MatrixView<float> y,
               GemmScratch& scratch) {
  PLUMBLINE_CHECK(x.isa() == isa && x.k() == weight.k() && x.Holds(weight.compute()));
  PLUMBLINE_CHECK(row_begin >= 0 && row_end <= x.m() && col_begin % kPanel == 0 && col_end <= weight.n());
  if (row_begin >= row_end || col_begin >= col_end) return;
  const TilePlan tile = ChooseTile(ShapeOf(x, row_end - row_begin, FormOf(x, weight)));
  if (tile.in_scratch) PLUMBLINE_CHECK(Grow(scratch.panel, ScratchBytes(x.k())).has_value());
  BlockRunner(x, weight, tile, scratch.panel.data())
      .Run(row_begin, row_end, col_begin, col_end, y, nullptr, false);
}

}  // namespace plumbline

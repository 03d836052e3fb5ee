#include "plumbline/kernels/gemm/gemm_plan.h"

#include <gtest/gtest.h>

#include "plumbline/kernels/gemm/gemm_kernels.h"

namespace plumbline {
namespace {

constexpr Isa kIsas[] = {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16};

TEST(GemmPlan, GroupsCoverTheRowsEvenly) {
  for (const Isa isa : kIsas) {
    for (int64_t m = 1; m < 200; ++m) {
      const RowGroups groups = MakeRowGroups(isa, m);
      int64_t row = 0;
      for (int64_t g = 0; g < groups.groups; ++g) {
        const RowGroups::Group group = groups.At(g);
        ASSERT_EQ(group.begin, row);
        ASSERT_GE(group.rows, m / groups.groups);
        ASSERT_LE(group.rows, m / groups.groups + 1);
        ASSERT_LE(group.rows, kMaxTileRows);
        for (int64_t r = 0; r < group.rows; ++r) ASSERT_EQ(groups.IndexOf(row + r), g);
        row += group.rows;
      }
      ASSERT_EQ(row, m);
    }
  }
}

// The tiles an instruction set offers are in its table: wherever the plan points there is one to run.
TEST(GemmPlan, EveryChoiceHasATile) {
  const TileKernels* tables[] = {&isa_avx2::kTileKernels, &isa_avx512::kTileKernels,
                                 &isa_avx512_bf16::kTileKernels};
  for (const Isa isa : kIsas) {
    for (const bool pairs : {false, true}) {
      if (pairs && isa != Isa::kAvx512Bf16) continue;
      for (const PanelForm form :
           {PanelForm::kReady, PanelForm::kWidened, PanelForm::kDecoded, PanelForm::kRegisters}) {
        for (int64_t rows = 1; rows < 64; ++rows) {
          const TilePlan tile = ChooseTile({isa, pairs, form, rows, 1024});
          ASSERT_GE(tile.rows, 1);
          ASSERT_EQ(tile.in_registers,
                    form == PanelForm::kRegisters && rows <= (pairs ? kMaxQuantRows : kMaxColumnRows));
          if (tile.in_registers) continue;
          const TileKind kind = pairs ? TileKind::kPairs : TileKind::kFloats;
          ASSERT_NE(tables[static_cast<int>(isa)]->tile[static_cast<int>(kind)][tile.rows - 1][tile.vectors],
                    nullptr);
          ASSERT_TRUE(!tile.in_scratch || tile.Panels() == 1);
          ASSERT_TRUE(tile.in_scratch || form == PanelForm::kReady || form == PanelForm::kWidened);
        }
      }
    }
  }
}

TEST(GemmPlan, EveryChoiceOfIntegersHasATile) {
  const QuadKernels* tables[] = {&isa_avx2::kQuadKernels, &isa_avx512::kQuadKernels,
                                 &isa_avx512_bf16::kQuadKernels};
  for (const Isa isa : kIsas) {
    for (int64_t rows = 1; rows < 64; ++rows) {
      const TilePlan tile = ChooseTile({isa, false, PanelForm::kQuads, rows, 1024});
      ASSERT_TRUE(tile.in_registers && tile.Panels() == 1);
      for (int format = static_cast<int>(PackedFormat::kQ8_0); format < kPackedFormats; ++format) {
        const QuadKernels& quads = *tables[static_cast<int>(isa)];
        ASSERT_NE(quads.tile[format][tile.rows - 1], nullptr) << rows;
        if (tile.in_scratch && quads.decode[format] != nullptr) {
          ASSERT_NE(quads.decoded[format][tile.rows - 1], nullptr) << rows;
        }
      }
    }
  }
}

TEST(GemmPlan, UnitsLeaveNoThreadIdleForLong) {
  for (const int threads : {1, 2, 3, 5, 64}) {
    for (const int64_t panels : {1, 6, 18, 30, 96, 1536}) {
      for (const int64_t rows : {1, 2, 12, 128, 512}) {
        const GemmShape shape = {Isa::kAvx512Bf16, true, PanelForm::kReady, rows, 576};
        const WorkPlan work = ChooseWork(shape, ChooseTile(shape), panels, threads);
        ASSERT_GE(work.unit_panels, 1);
        ASSERT_GE(work.row_block, 1);
        const int64_t units = (panels + work.unit_panels - 1) / work.unit_panels;
        const int64_t rounds = (units + threads - 1) / threads;
        ASSERT_LE(rounds * work.unit_panels, (panels + threads - 1) / threads + work.unit_panels - 1);
      }
    }
  }
}

TEST(GemmPlan, KnownShapes) {
  const GemmShape decode = {Isa::kAvx512Bf16, true, PanelForm::kReady, 1, 2048};
  EXPECT_EQ(ChooseTile(decode).vectors, 8);
  EXPECT_EQ(ChooseWork(decode, ChooseTile(decode), 64, 2).unit_panels, 4);
  EXPECT_EQ(ChooseWork(decode, ChooseTile(decode), 18, 2).unit_panels, 3);
  EXPECT_EQ(ChooseWork(decode, ChooseTile(decode), 18, 2).longest_run, INT64_MAX);
  const GemmShape prefill = {Isa::kAvx512Bf16, true, PanelForm::kReady, 128, 2048};
  EXPECT_EQ(ChooseWork(prefill, ChooseTile(prefill), 18, 2).longest_run, 4);
  const GemmShape decoded = {Isa::kAvx2, false, PanelForm::kDecoded, 128, 2048};
  EXPECT_EQ(ChooseWork(decoded, ChooseTile(decoded), 18, 2).longest_run, 1);
  EXPECT_EQ(ChooseTile(prefill).rows, 12);
  EXPECT_EQ(ChooseTile(prefill).vectors, 2);
  const GemmShape few = {Isa::kAvx512Bf16, true, PanelForm::kRegisters, 2, 2048};
  EXPECT_TRUE(ChooseTile(few).in_registers);
  // Bytes of many rows are decoded once, bf16 pairs are not where widening them is free.
  EXPECT_TRUE(ChooseTile({Isa::kAvx2, false, PanelForm::kQuads, 512, 576}).in_scratch);
  EXPECT_FALSE(ChooseTile({Isa::kAvx2, false, PanelForm::kQuads, 16, 576}).in_scratch);
  EXPECT_FALSE(ChooseTile({Isa::kAvx2, false, PanelForm::kWidened, 512, 576}).in_scratch);
  EXPECT_TRUE(ChooseTile({Isa::kAvx512, false, PanelForm::kWidened, 512, 576}).in_scratch);
}

}  // namespace
}  // namespace plumbline

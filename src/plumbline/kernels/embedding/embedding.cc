#include "plumbline/kernels/embedding/embedding.h"

#include "plumbline/base/check.h"
#include "plumbline/kernels/gemm/packed_row.h"

namespace plumbline {

void Embed(const KernelContext& context, const PackedWeight& table, std::span<const int64_t> ids,
           int64_t first_id, MatrixView<float> out) {
  PLUMBLINE_CHECK(out.cols == table.k() && out.rows == static_cast<int64_t>(ids.size()));
  context.pool.ParallelFor(out.rows,
                           [&](int64_t i, int) { ReadPackedRow(table, ids[i] - first_id, out.Row(i)); });
}

}  // namespace plumbline

#include "plumbline/kernels/embedding/embedding.h"

#include <gtest/gtest.h>

#include "plumbline/base/float_env.h"
#include "plumbline/kernels/gemm/gemm_testing.h"
#include "plumbline/kernels/gemm/gemm_twin.h"

namespace plumbline {
namespace {

using namespace gemm_testing;  // NOLINT(google-build-using-namespace)

TEST(Embed, ReturnsTheValuesTheMatmulSees) {
  constexpr int64_t kFirstId = 1000;
  const std::vector<int64_t> ids = {1000, 1044, 1003, 1003, 1031, 1032, 1017};
  for (const DType dtype : kWeightTypes) {
    const int64_t k = Info(dtype).block_elements == 1 ? 71 : 512;
    const Weight weight = RandomWeight(dtype, 45, k, 1);
    for (const Compute compute : kComputes) {
      const std::vector<float> values = gemm_twin::WeightValues(weight.tensor, compute);
      for (const int threads : {1, 2, 3, 5}) {
        for (const Isa isa : SupportedIsas()) {
          ThreadPool pool(threads);
          const KernelContext context = {pool, isa};
          const PackedWeight table = PackedWeight::Pack(context, weight.tensor, compute, 256).value();
          Matrix out(static_cast<int64_t>(ids.size()), k);
          Embed(context, table, ids, kFirstId, out.view);
          for (size_t i = 0; i < ids.size(); ++i) {
            for (int64_t j = 0; j < k; ++j) {
              ASSERT_TRUE(
                  SameBits(out.view.Row(static_cast<int64_t>(i))[j], values[(ids[i] - kFirstId) * k + j]))
                  << Info(dtype).name << " " << Name(compute);
            }
            ASSERT_EQ(out.view.Row(static_cast<int64_t>(i))[k], -7.5f);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace plumbline

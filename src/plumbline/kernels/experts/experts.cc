#include "plumbline/kernels/experts/experts.h"

#include "plumbline/base/check.h"
#include "plumbline/kernels/experts/experts_kernels.h"
#include "plumbline/kernels/for_rows.h"

namespace plumbline {
namespace {

const ExpertKernels& Kernels(Isa isa) {
  return ForIsa(isa, isa_avx2::kExpertKernels, isa_avx512::kExpertKernels, isa_avx512_bf16::kExpertKernels);
}

constexpr float kTaken = -1.0f;  // no probability

// The next in order; of a row of NaN the first that is not taken.
int32_t Best(const float* p, int64_t experts) {
  int32_t best = -1;
  for (int32_t e = 0; e < experts; ++e) {
    if (p[e] != kTaken && (best < 0 || p[e] > p[best])) best = e;
  }
  return best;
}

void ChooseRow(float* p, int64_t experts, int64_t k, bool normalize, int32_t* ids, float* weights) {
  float total = 0.0f;
  for (int64_t i = 0; i < k; ++i) {
    ids[i] = Best(p, experts);
    weights[i] = p[ids[i]];
    total = i == 0 ? weights[i] : total + weights[i];
    p[ids[i]] = kTaken;
  }
  if (!normalize) return;
  for (int64_t i = 0; i < k; ++i) weights[i] = weights[i] / total;
}

}  // namespace

void ChooseExperts(const KernelContext& context, MatrixView<float> logits, bool normalize,
                   MatrixView<int32_t> ids, MatrixView<float> weights) {
  const int64_t experts = logits.cols, k = ids.cols;
  PLUMBLINE_CHECK(k >= 1 && k <= experts && weights.cols == k);
  PLUMBLINE_CHECK(ids.rows == logits.rows && weights.rows == logits.rows);
  const ExpertKernels& kernels = Kernels(context.isa);
  // A pass over the row for each choice, one number at a time.
  ForRows(context.pool, logits.rows, logits.rows * experts * (8 + 4 * k), [&](int64_t row, int64_t count) {
    for (int64_t r = row; r < row + count; ++r) {
      kernels.softmax(logits.Row(r), experts);
      ChooseRow(logits.Row(r), experts, k, normalize, ids.Row(r), weights.Row(r));
    }
  });
}

void CombineExperts(const KernelContext& context, MatrixView<const float> weights,
                    MatrixView<const float> outputs, std::span<const int32_t> slots, bool accumulate,
                    MatrixView<float> out) {
  const int64_t k = weights.cols;
  PLUMBLINE_CHECK(weights.rows == out.rows && out.cols == outputs.cols);
  PLUMBLINE_CHECK(static_cast<int64_t>(slots.size()) == out.rows * k);
  const ExpertKernels& kernels = Kernels(context.isa);
  ForRows(context.pool, out.rows, out.rows * out.cols * k, [&](int64_t row, int64_t count) {
    for (int64_t r = row; r < row + count; ++r) {
      kernels.combine(weights.Row(r), k, outputs.data, outputs.stride, slots.data() + r * k, accumulate,
                      out.Row(r), out.cols);
    }
  });
}

}  // namespace plumbline

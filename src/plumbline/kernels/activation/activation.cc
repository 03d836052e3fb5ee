#include "plumbline/kernels/activation/activation.h"

#include "plumbline/base/check.h"
#include "plumbline/kernels/activation/activation_kernels.h"
#include "plumbline/kernels/for_rows.h"

namespace plumbline {
namespace {

const ActivationKernels& Kernels(Isa isa) {
  return ForIsa(isa, isa_avx2::kActivationKernels, isa_avx512::kActivationKernels,
                isa_avx512_bf16::kActivationKernels);
}

}  // namespace

std::optional<Activation> ParseActivation(std::string_view name) {
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return Activation::kGeluTanh;
  return std::nullopt;
}

void GatedActivation(const KernelContext& context, Activation activation, MatrixView<const float> gate,
                     MatrixView<const float> up, MatrixView<float> out) {
  PLUMBLINE_CHECK(gate.rows == out.rows && gate.cols == out.cols && up.rows == out.rows &&
                  up.cols == out.cols);
  const ActivationKernels& kernels = Kernels(context.isa);
  const auto run = activation == Activation::kSilu ? kernels.silu : kernels.gelu_tanh;
  // An exponential and a division make an element worth about four of simple arithmetic.
  ForRows(context.pool, out.rows, 4 * out.rows * out.cols, [&](int64_t row, int64_t count) {
    for (int64_t r = row; r < row + count; ++r) run(gate.Row(r), up.Row(r), out.Row(r), out.cols);
  });
}

}  // namespace plumbline

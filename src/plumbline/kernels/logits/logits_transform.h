// What turns the output of the last projection into logits (seed 000; decoder contract, section 2.2, steps 6
// and 7).
#pragma once

#include <cstdint>
#include <optional>

#include "plumbline/base/isa.h"
#include "plumbline/tensor/matrix.h"

namespace plumbline {

// In place over logits [rows, columns], column c being token id col_offset + c, all in float32 and in this
// order:
//   x <- x / logits_scaling        where logits_scaling is not exactly 1
//   x <- tanh(x / softcap) softcap where there is one
//   x <- -inf                      for ids >= unpadded_vocab: last, since a soft-cap would make it -softcap
// NaN stays NaN. Needs logits_scaling and softcap other than 0; the rows may be split among threads.
void ScaleAndSoftcap(Isa isa, MatrixView<float> logits, float logits_scaling, std::optional<float> softcap,
                     int64_t col_offset, int64_t unpadded_vocab);

}  // namespace plumbline

// The values of a step's inputs, whose shapes and dtypes are right (CheckDecoderInputs).
#pragma once

#include "plumbline/pipelines/contract/check_decoder_inputs.h"

namespace plumbline {

// What CheckDecoderInputs says of values.
Status CheckStepValues(const DecoderInputs<InputTensor>& inputs, const StepLimits& limits);

}  // namespace plumbline

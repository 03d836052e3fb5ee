// What distributed_logits_postprocess refuses.
#pragma once

#include "plumbline/nn/distributed_logits_postprocess.h"

namespace plumbline {

// This rank's sequences among the batch's; valid offsets and splits only.
Range OwnSequences(const RankContext& rank, const LogitsPostprocessInputs& in);

Status CheckLogitsPostprocess(const RankContext& rank, const LogitsPostprocessInputs& in);

}  // namespace plumbline

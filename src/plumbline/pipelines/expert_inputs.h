// Field 11, `ep`: the buffers that the expert exchange of each rank works in (nn/expert_exchange.h).
//
//   rankR/dispatch_send      f32 [rows sent, hidden]
//   rankR/dispatch_receive   f32 [rows received, hidden]
//   rankR/combine_send       f32 [pairs, hidden]
//   rankR/combine_receive    f32 [home rows * experts a token, hidden]
//
// at their largest sizes, on rank R alone, the same every step.
#pragma once

#include "plumbline/nn/workspace.h"
#include "plumbline/pipelines/contract/expert_parallel_exchange.h"

namespace plumbline {

// Of all ranks, in rank order, for steps of at most `max_rows` rows a replica; none where ep is 1.
InputTree<InputSpec> ExpertInputTypes(const DecoderConfig& config, const ParallelDegrees& degrees,
                                      int64_t max_rows);

// Those of `declared`, with `rank`'s own in `scratch`.
ExpertParallelExchange BindExpertInputs(const InputTree<InputSpec>& declared, int rank,
                                        const ExpertScratch& scratch);

}  // namespace plumbline

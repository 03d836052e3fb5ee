// A tiny model on ranks of this process, whose decoders a test changes before they run.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "plumbline/models/load_decoder.h"
#include "plumbline/pipelines/engine_test_util.h"

namespace plumbline {

// `change(decoder, rank)` is called for every rank.
template <typename Change>
std::unique_ptr<Runtime> ChangedRanks(const ParallelDegrees& degrees, Change&& change) {
  const std::string model = fmt::format("{}/tests/golden/models/llama3", PLUMBLINE_SOURCE_DIR);
  ThreadPool pool(2);
  const RuntimeOptions options{.isa = SupportedIsas().back(), .degrees = degrees};
  const auto checkpoint = Checkpoint::Open(model).value();
  std::vector<std::shared_ptr<const Decoder>> decoders;
  for (int rank = 0; rank < degrees.Ranks(); ++rank) {
    Decoder decoder =
        LoadDecoder({pool, options.isa}, *checkpoint, {.degrees = degrees, .rank = rank}, nullptr).value();
    change(decoder, rank);
    decoders.push_back(std::make_shared<const Decoder>(std::move(decoder)));
  }
  return Runtime::Of(std::move(decoders), options).value();
}

}  // namespace plumbline

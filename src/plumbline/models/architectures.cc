#include "plumbline/models/architectures.h"

#include <string>

#include "plumbline/models/families.h"

namespace plumbline {
namespace {

constexpr Architecture kArchitectures[] = {
    {"llama", ConfigureLlama},      // Llama 2, 3.x, SmolLM2
    {"mistral", ConfigureMistral},  // Mistral
    {"qwen2", ConfigureQwen2},      // Qwen2, Qwen2.5
    {"qwen3", ConfigureQwen3},      // Qwen3
};

}  // namespace

std::span<const Architecture> Architectures() { return kArchitectures; }

Result<DecoderConfig> ReadDecoderConfig(const ModelSource& source) {
  ASSIGN_OR_RETURN(const std::string type, source.ModelType());
  std::string known;
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == type) {
      ASSIGN_OR_RETURN(DecoderConfig config, architecture.configure(source));
      config.architecture = architecture.name;
      return config;
    }
    known += known.empty() ? "" : ", ";
    known += architecture.name;
  }
  return InvalidInput("architecture: got '{}', want one of {} ({})", type, known, source.checkpoint().path());
}

}  // namespace plumbline

#include "plumbline/models/architectures.h"

#include <string>

#include "plumbline/models/expert_config.h"
#include "plumbline/models/families.h"

namespace plumbline {
namespace {

constexpr Architecture kArchitectures[] = {
    {"llama", ConfigureLlama},         // Llama 2, 3.x, SmolLM2
    {"mistral", ConfigureMistral},     // Mistral
    {"mixtral", ConfigureMixtral},     // Mixtral
    {"qwen2", ConfigureQwen2},         // Qwen2, Qwen2.5
    {"qwen3", ConfigureQwen3},         // Qwen3
    {"qwen3_moe", ConfigureQwen3Moe},  // Qwen3-MoE
    {"qwen3moe", ConfigureQwen3Moe},   // the same in GGUF
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
      ASSIGN_OR_RETURN(const int64_t experts, ReadExpertCount(source));
      if (experts > 0 && config.experts.count == 0) {
        return InvalidInput("num_experts: got {}, want a dense decoder ({})", experts,
                            source.checkpoint().path());
      }
      return config;
    }
    known += known.empty() ? "" : ", ";
    known += architecture.name;
  }
  return InvalidInput("architecture: got '{}', want one of {} ({})", type, known, source.checkpoint().path());
}

}  // namespace plumbline

#include "plumbline/pipelines/digest.h"

#include "plumbline/base/sha256.h"

namespace plumbline {

std::string ResultDigest(const RequestResult& result) {
  Sha256 hash;
  hash.Update(result.logprobs.data(), result.logprobs.size() * sizeof(float));
  for (const auto& [id, logprob] : result.top) hash.Update(&logprob, sizeof(float));
  hash.Update(result.max_logits.data(), result.max_logits.size() * sizeof(float));
  return hash.HexDigest();
}

}  // namespace plumbline

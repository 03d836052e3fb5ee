#include "plumbline/pipelines/runtime.h"

#include <utility>

#include "plumbline/base/memory.h"
#include "plumbline/models/architectures.h"
#include "plumbline/pipelines/checkpoint_text.h"

namespace plumbline {

Result<std::unique_ptr<Runtime>> Runtime::Load(const std::string& path, const RuntimeOptions& options,
                                               const LoadProgress& progress) {
  std::unique_ptr<Runtime> runtime(new Runtime(options));
  ASSIGN_OR_RETURN(runtime->checkpoint_, Checkpoint::Open(path));
  // The tokenizer first: it is small, and what is wrong with it should be known before weights are packed.
  const ModelSource source(*runtime->checkpoint_);
  ASSIGN_OR_RETURN(const DecoderConfig config, ReadDecoderConfig(source));
  ASSIGN_OR_RETURN(runtime->tokenizer_, LoadTokenizer(*runtime->checkpoint_, config.vocab));
  ASSIGN_OR_RETURN(runtime->stop_ids_, LoadStopIds(*runtime->checkpoint_));
  ReleaseFreeHeap();
  if (options.memory_limit > 0) {
    ASSIGN_OR_RETURN(const int64_t packed, PackedDecoderBytes(*runtime->checkpoint_, options.compute));
    if (packed > options.memory_limit) {
      return InvalidInput("--memory-limit: got {} bytes, want more than the {} of the packed weights ({})",
                          options.memory_limit, packed, path);
    }
  }
  ASSIGN_OR_RETURN(Decoder decoder,
                   LoadDecoder(runtime->context(), *runtime->checkpoint_, options.compute, progress));
  runtime->decoder_ = std::make_shared<const Decoder>(std::move(decoder));
  runtime->checkpoint_->ForgetContents();
  ReleaseFreeHeap();
  return runtime;
}

std::unique_ptr<Runtime> Runtime::With(int threads, Isa isa) const {
  std::unique_ptr<Runtime> other(
      new Runtime(RuntimeOptions{.compute = options_.compute, .threads = threads, .isa = isa}));
  other->checkpoint_ = checkpoint_;
  other->decoder_ = decoder_;
  other->tokenizer_ = tokenizer_;
  other->stop_ids_ = stop_ids_;
  other->sha256_ = sha256_;
  return other;
}

Result<const Tokenizer*> Runtime::RequireTokenizer() const {
  if (tokenizer_ == nullptr)
    return InvalidInput("tokenizer: got none, want one beside the weights ({})", model_path());
  return tokenizer_.get();
}

const std::string& Runtime::ModelSha256() const {
  if (sha256_.empty()) sha256_ = checkpoint_->Sha256Hex();
  return sha256_;
}

}  // namespace plumbline

// A model ready to run: weights packed, tokenizer loaded, threads started.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plumbline/kernels/kernel_context.h"
#include "plumbline/models/load_decoder.h"
#include "plumbline/text/tokenizer.h"

namespace plumbline {

// The version of the numerics contract (docs/numerics.md) that every result carries.
inline constexpr int kNumericsVersion = 1;

struct RuntimeOptions {
  Compute compute = Compute::kBf16;
  int threads = 1;
  Isa isa = Isa::kAvx2;
  int64_t memory_limit = 0;  // weights that would take more are refused before they are packed; 0: no limit
};

class Runtime {
 public:
  static Result<std::unique_ptr<Runtime>> Load(const std::string& path, const RuntimeOptions& options,
                                               const LoadProgress& progress);

  // The same model, whose weights and files it shares, with other threads or another instruction set. Packed
  // weights depend on neither.
  std::unique_ptr<Runtime> With(int threads, Isa isa) const;

  KernelContext context() const { return {pool_, options_.isa}; }
  const RuntimeOptions& options() const { return options_; }
  const Decoder& decoder() const { return *decoder_; }
  const DecoderConfig& config() const { return decoder_->config; }
  const std::string& model_path() const { return checkpoint_->path(); }

  const Tokenizer* tokenizer() const { return tokenizer_.get(); }  // null where the checkpoint brings none
  Result<const Tokenizer*> RequireTokenizer() const;
  // Ids that end a generation (EOS, end of turn).
  const std::vector<int32_t>& stop_ids() const { return stop_ids_; }

  const std::string& ModelSha256() const;  // computed at first use

 private:
  explicit Runtime(const RuntimeOptions& options) : options_(options), pool_(options.threads) {}

  RuntimeOptions options_;
  mutable ThreadPool pool_;
  std::shared_ptr<Checkpoint> checkpoint_;
  std::shared_ptr<const Decoder> decoder_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<int32_t> stop_ids_;
  mutable std::string sha256_;
};

}  // namespace plumbline

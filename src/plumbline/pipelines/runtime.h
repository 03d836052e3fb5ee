// A model ready to run: weights packed, tokenizer loaded, ranks and their threads started.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plumbline/comm/mpi/mpi_group.h"
#include "plumbline/kernels/kernel_context.h"
#include "plumbline/models/load_decoder.h"
#include "plumbline/pipelines/rank_group.h"
#include "plumbline/text/tokenizer.h"

namespace plumbline {

// The version of the numerics contract (docs/numerics.md) that every result carries.
inline constexpr int kNumericsVersion = 1;

enum class Launcher : uint8_t {
  kLocal,  // ranks are threads of this process
  kMpi,    // ranks are processes, started by mpirun
};

struct RuntimeOptions {
  Compute compute = Compute::kBf16;
  int threads = 1;  // of each rank
  Isa isa = Isa::kAvx2;
  int64_t memory_limit = 0;  // weights that would take more are refused before they are packed; 0: no limit
  ParallelDegrees degrees;
  Launcher launcher = Launcher::kLocal;
};

// What the controller sees of a run's ranks.
class Runtime {
 public:
  // Refuses degrees that the model cannot be cut by. With Launcher::kMpi every process calls it at once;
  // those after the first serve and return null when the first one's runtime is gone.
  static Result<std::unique_ptr<Runtime>> Load(const std::string& path, const RuntimeOptions& options,
                                               const LoadProgress& progress);

  // Of decoders made elsewhere, one a local rank in rank order; without checkpoint and tokenizer.
  static Result<std::unique_ptr<Runtime>> Of(std::vector<std::shared_ptr<const Decoder>> decoders,
                                             const RuntimeOptions& options);

  // The same model with other threads or another instruction set: shares weights (packed weights depend on
  // neither) and files. Local ranks only.
  Result<std::unique_ptr<Runtime>> With(int threads, Isa isa) const;
  // The same cut for other degrees: files are read and weights packed anew.
  Result<std::unique_ptr<Runtime>> With(const ParallelDegrees& degrees, int threads) const;

  KernelContext context() const { return rank().context().kernel; }
  Rank& rank() const { return ranks_->self(); }  // the controller's own
  int64_t NextEngine() const { return ranks_->NextEngine(); }
  const RuntimeOptions& options() const { return options_; }
  const Decoder& decoder() const { return rank().decoder(); }  // of the controller's rank
  const DecoderConfig& config() const { return decoder().config; }
  int64_t WeightBytes() const;  // of all ranks in this process, what they share once
  int64_t EmbeddingBytes() const;
  // Of one KV page on all ranks that hold a part of it.
  int64_t KvPageBytes(int64_t page_size) const;
  const std::string& model_path() const { return checkpoint_->path(); }

  const Tokenizer* tokenizer() const { return tokenizer_.get(); }  // null where the checkpoint brings none
  Result<const Tokenizer*> RequireTokenizer() const;
  // Ids that end a generation (EOS, end of turn).
  const std::vector<int32_t>& stop_ids() const { return stop_ids_; }

  const std::string& ModelSha256() const;  // computed at first use

 private:
  explicit Runtime(const RuntimeOptions& options) : options_(options) {}
  std::unique_ptr<Runtime> Copy(const RuntimeOptions& options) const;
  Status LoadLocal(const LoadProgress& progress);
  Status LoadMpi(const LoadProgress& progress);

  RuntimeOptions options_;
  std::shared_ptr<Checkpoint> checkpoint_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<int32_t> stop_ids_;
  mutable std::string sha256_;
  std::unique_ptr<MpiSession> session_;                   // ends after everything that talks
  std::vector<std::shared_ptr<const Decoder>> decoders_;  // of the ranks in this process
  std::unique_ptr<RankGroup> ranks_;
};

}  // namespace plumbline

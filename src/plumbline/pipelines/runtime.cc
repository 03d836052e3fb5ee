#include "plumbline/pipelines/runtime.h"

#include <set>
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
  RETURN_IF_ERROR(CheckDegrees(config, options.degrees));
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
  RETURN_IF_ERROR(options.launcher == Launcher::kMpi ? runtime->LoadMpi(progress)
                                                     : runtime->LoadLocal(progress));
  if (runtime->ranks_ == nullptr) return nullptr;
  runtime->checkpoint_->ForgetContents();
  ReleaseFreeHeap();
  return runtime;
}

Result<std::unique_ptr<Runtime>> Runtime::Of(std::vector<std::shared_ptr<const Decoder>> decoders,
                                             const RuntimeOptions& options) {
  if (std::ssize(decoders) != options.degrees.Ranks()) {
    return InvalidInput("decoders: got {}, want one for each of {} ranks", decoders.size(),
                        options.degrees.Ranks());
  }
  std::unique_ptr<Runtime> runtime(new Runtime(options));
  runtime->decoders_ = std::move(decoders);
  ASSIGN_OR_RETURN(runtime->ranks_, RankGroup::StartLocal(runtime->decoders_, options.threads, options.isa));
  return runtime;
}

// Every rank's weights are packed by all threads, one rank after the other.
Status Runtime::LoadLocal(const LoadProgress& progress) {
  ThreadPool pool(options_.threads * options_.degrees.Ranks());
  std::vector<const Decoder*> loaded;
  for (int rank = 0; rank < options_.degrees.Ranks(); ++rank) {
    ASSIGN_OR_RETURN(
        Decoder decoder,
        LoadDecoder(
            {pool, options_.isa}, *checkpoint_,
            {.compute = options_.compute, .degrees = options_.degrees, .rank = rank, .loaded = loaded},
            progress));
    decoders_.push_back(std::make_shared<const Decoder>(std::move(decoder)));
    loaded.push_back(decoders_.back().get());
  }
  ASSIGN_OR_RETURN(ranks_, RankGroup::StartLocal(decoders_, options_.threads, options_.isa));
  return {};
}

// Rank 0 leads; the others serve it here, until it has done, and have no ranks_ afterwards.
Status Runtime::LoadMpi(const LoadProgress& progress) {
  ASSIGN_OR_RETURN(session_, StartMpi());
  ASSIGN_OR_RETURN(std::unique_ptr<Communicator> world, session_->MakeGroup());
  const int rank = world->rank(), ranks = options_.degrees.Ranks();
  if (world->size() != ranks) {
    return world->Abort(
        {ErrorCode::kInvalidInput,
         fmt::format("mpirun: got {} processes, want {} (--tp x --dp x --pp x --cp)", world->size(), ranks)});
  }
  ThreadPool pool(options_.threads);
  Result<Decoder> decoder =
      LoadDecoder({pool, options_.isa}, *checkpoint_,
                  {.compute = options_.compute, .degrees = options_.degrees, .rank = rank},
                  rank == 0 ? progress : nullptr);
  if (!decoder) return world->Abort(std::move(decoder).error());
  decoders_.push_back(std::make_shared<const Decoder>(std::move(*decoder)));
  if (rank == 0) {
    ASSIGN_OR_RETURN(ranks_,
                     RankGroup::Lead(std::move(world), decoders_.front(), options_.threads, options_.isa));
    return {};
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Rank> self,
                   Rank::Join(std::move(world), decoders_.front(), options_.threads, options_.isa));
  return self->Serve();
}

std::unique_ptr<Runtime> Runtime::Copy(const RuntimeOptions& options) const {
  std::unique_ptr<Runtime> other(new Runtime(options));
  other->checkpoint_ = checkpoint_;
  other->tokenizer_ = tokenizer_;
  other->stop_ids_ = stop_ids_;
  other->sha256_ = sha256_;
  return other;
}

Result<std::unique_ptr<Runtime>> Runtime::With(int threads, Isa isa) const {
  if (options_.launcher != Launcher::kLocal) return InvalidInput("--launcher: got mpi, want local (verify)");
  RuntimeOptions options = options_;
  options.threads = threads;
  options.isa = isa;
  std::unique_ptr<Runtime> other = Copy(options);
  other->decoders_ = decoders_;
  ASSIGN_OR_RETURN(other->ranks_, RankGroup::StartLocal(decoders_, threads, isa));
  return other;
}

Result<std::unique_ptr<Runtime>> Runtime::With(const ParallelDegrees& degrees, int threads) const {
  if (options_.launcher != Launcher::kLocal) return InvalidInput("--launcher: got mpi, want local (verify)");
  if (checkpoint_ == nullptr) return InvalidInput("checkpoint: got none, want one to cut for other degrees");
  RETURN_IF_ERROR(CheckDegrees(config(), degrees));
  RuntimeOptions options = options_;
  options.degrees = degrees;
  options.threads = threads;
  std::unique_ptr<Runtime> other = Copy(options);
  ASSIGN_OR_RETURN(other->checkpoint_,
                   Checkpoint::Open(model_path()));  // this one's has forgotten its contents
  RETURN_IF_ERROR(other->LoadLocal(nullptr));
  other->checkpoint_->ForgetContents();
  return other;
}

int64_t Runtime::WeightBytes() const {
  int64_t bytes = 0;
  std::set<const void*> layers;
  for (const auto& decoder : decoders_)
    bytes += decoder->WeightBytes(/*with_layers=*/layers.insert(decoder->layers.get()).second);
  return bytes;
}

int64_t Runtime::EmbeddingBytes() const {
  int64_t bytes = 0;
  for (const auto& decoder : decoders_)
    bytes += decoder->embedding.weight != nullptr ? decoder->embedding.weight->bytes() : 0;
  return bytes;
}

int64_t Runtime::KvPageBytes(int64_t page_size) const {
  int64_t bytes = 0;
  for (int tensor = 0; tensor < options_.degrees.tp; ++tensor) {
    KvLayout layout = decoder().Kv(page_size);
    layout.layers = config().layers;
    layout.kv_heads = KvHeadsOf(config(), options_.degrees.tp, tensor).size();
    bytes += layout.PageBytes();
  }
  return bytes;
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

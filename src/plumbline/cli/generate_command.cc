#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "plumbline/cli/commands.h"
#include "plumbline/cli/json_writer.h"
#include "plumbline/cli/options.h"
#include "plumbline/cli/output.h"
#include "plumbline/cli/result_json.h"
#include "plumbline/pipelines/stop_strings.h"

namespace plumbline::cli {
namespace {

struct GenerateOptions : PromptOptions {
  int64_t new_tokens = 64;
  SamplingOptions sampling;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_ids;
  bool ignore_eos = false;
  int32_t draft_ngram = 0;
  bool logprobs = false;
};

// Text as it is generated: each token's characters, held back only while they could begin a stop string.
class GenerateListener : public EngineListener {
 public:
  GenerateListener(const Tokenizer* tokenizer, std::span<const int32_t> stop_ids,
                   std::vector<std::string> stop, Output* stream)
      : stop_ids_(stop_ids), stop_strings_(std::move(stop)), stream_(stream) {
    if (tokenizer != nullptr) detokenizer_.emplace(*tokenizer, /*skip_special=*/true);
  }

  bool OnToken(size_t /*request*/, const RequestResult& result) override {
    const int32_t id = result.tokens.back();
    if (!detokenizer_ || std::ranges::find(stop_ids_, id) != stop_ids_.end()) return true;
    Emit(stop_strings_.Push(detokenizer_->Push(id)));
    return !stop_strings_.stopped() && status_.has_value();
  }

  Status OnResult(size_t /*request*/, RequestResult result) override {
    if (detokenizer_ && !stop_strings_.stopped()) {
      Emit(stop_strings_.Push(detokenizer_->Flush()));
      Emit(stop_strings_.Flush());
    }
    result_ = std::move(result);
    return status_;
  }

  const std::string& text() const { return text_; }
  RequestResult& result() { return result_; }

 private:
  void Emit(const std::string& piece) {
    text_ += piece;
    if (stream_ != nullptr && status_ && !piece.empty()) status_ = stream_->Write(piece);
  }

  std::span<const int32_t> stop_ids_;
  StopStrings stop_strings_;
  Output* stream_;
  std::optional<StreamingDetokenizer> detokenizer_;
  std::string text_;
  RequestResult result_;
  Status status_;
};

Status CheckDrafts(const GenerateOptions& options) {
  if (options.draft_ngram >= 0 && options.draft_ngram <= kMaxDraftTokens) return {};
  return InvalidInput("--draft-ngram: got {}, want 0 to {}", options.draft_ngram, kMaxDraftTokens);
}

Result<Request> MakeRequest(const GenerateOptions& options, const Runtime& runtime) {
  if (options.has_prompt() == !options.tokens.empty()) {
    return InvalidInput("input: got both or none of -p and --tokens, want one");
  }
  if (options.new_tokens < 1) return InvalidInput("-n: got {}, want at least 1", options.new_tokens);
  for (const std::string& stop : options.stop) {
    if (stop.empty()) return InvalidInput("--stop: got an empty string, want text");
  }
  Request request{.id = "0", .tokens = {}};
  if (options.has_prompt()) {
    if (options.prompt.empty()) return InvalidInput("prompt: got an empty text, want at least one character");
    ASSIGN_OR_RETURN(const Tokenizer* tokenizer, runtime.RequireTokenizer());
    request.tokens = tokenizer->Encode(options.prompt, !options.no_bos);
  } else {
    ASSIGN_OR_RETURN(request.tokens, ParseIdList("--tokens", options.tokens));
  }
  request.score_from = std::max<int64_t>(1, static_cast<int64_t>(request.tokens.size()));
  request.top_logprobs = options.top_logprobs;
  request.max_logits = options.max_logit;
  request.max_new_tokens = options.new_tokens;
  request.sampling = options.sampling;
  request.stop_ids = options.stop_ids;
  request.draft_tokens = options.draft_ngram;
  if (!options.ignore_eos) {
    request.stop_ids.insert(request.stop_ids.end(), runtime.stop_ids().begin(), runtime.stop_ids().end());
  }
  return request;
}

// With --logprobs or --top-logprobs in text form: a line a token after the text.
std::string LogProbsText(const RequestResult& result, const Runtime& runtime) {
  std::string out;
  for (size_t i = 0; i < result.logprobs.size(); ++i) {
    std::string piece;
    const auto append = [&](int32_t id) {
      piece.clear();
      AppendJsonString(piece, runtime.tokenizer() == nullptr ? fmt::format("<{}>", id)
                                                             : runtime.tokenizer()->TokenBytes(id));
    };
    append(result.tokens[result.prompt_tokens + i]);
    out += fmt::format("{:16} {:10.4f}", piece, result.logprobs[i]);
    for (const auto& [id, logprob] : result.Top(static_cast<int64_t>(i))) {
      append(id);
      out += fmt::format("  {} {:.2f}", piece, logprob);
    }
    out += '\n';
  }
  return out;
}

Status Run(const GenerateOptions& options, const std::atomic<bool>& cancelled) {
  ASSIGN_OR_RETURN(const Format format, ToFormat(options));
  ASSIGN_OR_RETURN(EngineOptions engine_options, ToEngineOptions(options));
  engine_options.cancelled = &cancelled;
  engine_options.batch_size = 1;
  engine_options.draft_rows = options.draft_ngram;
  RETURN_IF_ERROR(CheckSamplingOptions(options.sampling));
  RETURN_IF_ERROR(CheckDrafts(options));
  RETURN_IF_ERROR(Output::CheckWritable(options.output));
  ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime, LoadRuntime(options));
  ASSIGN_OR_RETURN(const Request request, MakeRequest(options, *runtime));
  ASSIGN_OR_RETURN(Engine engine, Engine::Create(*runtime, engine_options));
  RETURN_IF_ERROR(engine.Check({&request, 1}));

  ASSIGN_OR_RETURN(const std::unique_ptr<Output> output, Output::Open(options.output));
  GenerateListener listener(runtime->tokenizer(), request.stop_ids, options.stop,
                            format == Format::kText ? output.get() : nullptr);
  RETURN_IF_ERROR(engine.Run({&request, 1}, listener));
  const bool with_logprobs = options.logprobs || options.top_logprobs > 0;
  if (format == Format::kText) {
    RETURN_IF_ERROR(output->Write("\n"));
    if (with_logprobs) RETURN_IF_ERROR(output->Write(LogProbsText(listener.result(), *runtime)));
  } else {
    const GenerateRecord record{.id = request.id,
                                .text = listener.text(),
                                .with_logprobs = with_logprobs,
                                .result = std::move(listener.result())};
    const ReceiptContext receipt{.runtime = runtime.get(), .chunk_size = engine_options.chunk_size};
    RETURN_IF_ERROR(output->Write(GenerateJson(record, receipt, format == Format::kJson)));
  }
  return output->Close();
}

}  // namespace

Command AddGenerate(CLI::App& app, const std::atomic<bool>& cancelled) {
  CLI::App* command = app.add_subcommand("generate", "continue a text");
  auto options = std::make_shared<GenerateOptions>();
  AddModelOption(*command, *options);
  AddPromptOptions(*command, *options);
  command->add_option("-n,--new-tokens", options->new_tokens, "tokens to generate")->capture_default_str();
  SamplingOptions& sampling = options->sampling;
  command->add_option("--temperature", sampling.temperature, "0: greedy")->capture_default_str();
  command->add_option("--top-k", sampling.top_k, "0: no limit")->capture_default_str();
  command->add_option("--top-p", sampling.top_p, "nucleus share, above 0 to 1")->capture_default_str();
  command->add_option("--min-p", sampling.min_p, "least share of the best token's probability")
      ->capture_default_str();
  command->add_option("--repetition-penalty", sampling.repetition_penalty, "1: none")->capture_default_str();
  command->add_option("--seed", sampling.seed, "of the random choices")->capture_default_str();
  command->add_option("--stop", options->stop, "text that ends the generation (repeatable)");
  command->add_option("--stop-id", options->stop_ids, "token id that ends the generation (repeatable)");
  command->add_flag("--ignore-eos", options->ignore_eos, "go on past the model's end tokens");
  command
      ->add_option("--draft-ngram", options->draft_ngram,
                   "tokens to guess from the text so far and check in one step; changes no result")
      ->capture_default_str();
  command->add_flag("--logprobs", options->logprobs, "log-probs of the generated tokens");
  AddRunOptions(*command, *options);
  AddEngineOptions(*command, *options);
  AddOutputOptions(*command, *options);
  return {.run = [options, &cancelled] { return Run(*options, cancelled); }, .options = options};
}

}  // namespace plumbline::cli

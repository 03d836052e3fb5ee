#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "plumbline/cli/commands.h"
#include "plumbline/cli/hidden_states_file.h"
#include "plumbline/cli/options.h"
#include "plumbline/cli/output.h"
#include "plumbline/cli/progress.h"
#include "plumbline/cli/result_json.h"
#include "plumbline/cli/resume.h"
#include "plumbline/cli/score_text.h"
#include "plumbline/pipelines/score_requests.h"

namespace plumbline::cli {
namespace {

struct ScoreOptions : PromptOptions {
  std::string file;
  std::string hidden_states = "none";
  std::string layers;
  std::string hidden_states_out;
  int64_t stride = 0;
  bool resume = false;
};

Result<std::vector<InputDocument>> ReadDocuments(const ScoreOptions& options) {
  const int inputs = options.has_prompt() + !options.file.empty() + !options.tokens.empty();
  if (inputs != 1) return InvalidInput("input: got {} of -p, -f and --tokens, want one", inputs);
  if (options.has_prompt())
    return std::vector{InputDocument{.id = "0", .text = options.prompt, .continuation = {}, .tokens = {}}};
  if (!options.tokens.empty()) {
    ASSIGN_OR_RETURN(std::vector<int32_t> ids, ParseIdList("--tokens", options.tokens));
    return std::vector{InputDocument{.id = "0", .text = "", .continuation = {}, .tokens = std::move(ids)}};
  }
  ASSIGN_OR_RETURN(std::string text, ReadTextFile(options.file));
  if (!options.file.ends_with(".jsonl")) {
    return std::vector{InputDocument{.id = "0", .text = std::move(text), .continuation = {}, .tokens = {}}};
  }
  ASSIGN_OR_RETURN(std::vector<InputDocument> documents, ParseRequestLines(text, options.file));
  if (documents.empty()) return InvalidInput("input: got no requests, want at least one ({})", options.file);
  return documents;
}

Status ReadHiddenStates(const ScoreOptions& options, EngineOptions& engine) {
  const std::optional<ReturnHiddenStates> mode = ParseReturnHiddenStates(options.hidden_states);
  if (!mode) {
    return InvalidInput(
        "--hidden-states: got '{}', want none, last, last_per_device, all, all_normalized or "
        "selected_layers",
        options.hidden_states);
  }
  engine.hidden_states = *mode;
  const bool selected = *mode == ReturnHiddenStates::kSelectedLayers;
  if (selected != !options.layers.empty()) {
    return InvalidInput("--layers: got {}, want it with --hidden-states selected_layers, and only then",
                        options.layers.empty() ? "none" : options.layers);
  }
  if ((*mode != ReturnHiddenStates::kNone) != !options.hidden_states_out.empty()) {
    return InvalidInput("--hidden-states-out: got {}, want a file with --hidden-states, and only then",
                        options.hidden_states_out.empty() ? "none" : options.hidden_states_out);
  }
  if (*mode != ReturnHiddenStates::kNone && options.stride > 0) {
    return InvalidInput("--stride: got {} with --hidden-states, want one of them", options.stride);
  }
  if (!selected) return {};
  ASSIGN_OR_RETURN(engine.layers, ParseIdList("--layers", options.layers));
  for (size_t i = 1; i < engine.layers.size(); ++i) {
    if (engine.layers[i] <= engine.layers[i - 1]) {
      return InvalidInput("--layers: got {}, want layers in ascending order", options.layers);
    }
  }
  return {};
}

// Documents as the engine's requests: one each, or one a window.
struct Work {
  std::vector<ScoreDocument> documents;
  std::vector<Request> requests;
  std::vector<size_t> document_of;  // [requests]
};

Result<Work> MakeWork(const ScoreOptions& options, const Runtime& runtime,
                      std::span<const InputDocument> inputs) {
  if (options.stride < 0 || options.stride >= runtime.config().max_positions) {
    return InvalidInput("--stride: got {}, want 1 to below the context of {}", options.stride,
                        runtime.config().max_positions);
  }
  Work work;
  for (const InputDocument& input : inputs) {
    ASSIGN_OR_RETURN(ScoreDocument document, TokenizeDocument(input, runtime.tokenizer(), !options.no_bos));
    const int64_t length = static_cast<int64_t>(document.tokens.size());
    for (const Window& window : MakeWindows(length, runtime.config().max_positions, options.stride)) {
      Request request{.id = document.id, .tokens = {}};
      request.tokens.assign(document.tokens.begin() + window.begin, document.tokens.begin() + window.end);
      request.score_from = window.score_from;
      request.top_logprobs = options.top_logprobs;
      request.max_logits = options.max_logit;
      work.requests.push_back(std::move(request));
      work.document_of.push_back(work.documents.size());
    }
    work.documents.push_back(std::move(document));
  }
  return work;
}

// Joins windows, writes each document as it is done.
class ScoreListener : public EngineListener {
 public:
  ScoreListener(const Runtime& runtime, const Work& work, Format format, ReceiptContext receipt,
                Output& output, HiddenStatesFile* hidden_states, bool quiet)
      : runtime_(runtime),
        work_(work),
        format_(format),
        receipt_(receipt),
        output_(output),
        hidden_states_(hidden_states),
        progress_("scoring", quiet) {}

  Status OnHiddenStates(size_t request, int64_t first_row,
                        std::span<const MatrixView<const float>> states) override {
    return hidden_states_->Write(work_.document_of[request], first_row, states);
  }

  Status OnResult(size_t request, RequestResult result) override {
    windows_.push_back(std::move(result));
    const size_t index = work_.document_of[request];
    const bool last = request + 1 == work_.requests.size() || work_.document_of[request + 1] != index;
    if (!last) return {};
    const ScoreDocument& document = work_.documents[index];
    const ScoreRecord record{.id = document.id,
                             .continuation_begin = document.continuation_begin,
                             .result = JoinWindows(document, std::exchange(windows_, {}))};
    progress_.Clear();
    if (format_ == Format::kText) return output_.Write(ScoreText(record, runtime_));
    return output_.Write(ScoreJson(record, receipt_, format_ == Format::kJson));
  }

  void OnProgress(int64_t done, int64_t total) override { progress_.Update(done, total, "tokens"); }

 private:
  const Runtime& runtime_;
  const Work& work_;
  const Format format_;
  const ReceiptContext receipt_;
  Output& output_;
  HiddenStatesFile* hidden_states_;
  Progress progress_;
  std::vector<RequestResult> windows_;
};

Status CheckResume(const ScoreOptions& options, Format format) {
  if (!options.resume) return {};
  if (options.output.empty()) return InvalidInput("--resume: got no --output, want the file to go on with");
  if (format != Format::kJsonl) {
    return InvalidInput("--resume: got --format {}, want jsonl", options.format);
  }
  if (options.hidden_states != "none") {
    return InvalidInput("--resume: got it with --hidden-states, want one of them");
  }
  return {};
}

// Where the results go, and which requests have theirs there already.
struct Destination {
  std::unique_ptr<Output> output;  // null: opened after the last check
  ResumePoint done;
};

Result<Destination> FindDestination(const ScoreOptions& options, std::span<const InputDocument> inputs) {
  Destination destination;
  if (!options.resume) return destination;
  ASSIGN_OR_RETURN(destination.output, Output::OpenToResume(options.output));
  ASSIGN_OR_RETURN(destination.done, FindResumePoint(options.output, inputs));
  return destination;
}

Status CheckDone(const ScoreOptions& options, const ResumePoint& done, const ReceiptContext& receipt,
                 std::span<const InputDocument> inputs) {
  if (done.records == 0) return {};
  const Runtime& runtime = *receipt.runtime;
  ASSIGN_OR_RETURN(const ScoreDocument last,
                   TokenizeDocument(inputs[done.records - 1], runtime.tokenizer(), !options.no_bos));
  const ResumedRun run = {.receipt = receipt,
                          .last_document = last,
                          .top_k = std::min<int64_t>(options.top_logprobs, runtime.config().vocab),
                          .max_logits = options.max_logit};
  return CheckLastRecord(done, run, options.output);
}

Status Run(const ScoreOptions& options, const std::atomic<bool>& cancelled) {
  ASSIGN_OR_RETURN(const Format format, ToFormat(options));
  RETURN_IF_ERROR(CheckResume(options, format));
  ASSIGN_OR_RETURN(EngineOptions engine_options, ToEngineOptions(options));
  RETURN_IF_ERROR(ReadHiddenStates(options, engine_options));
  engine_options.cancelled = &cancelled;
  engine_options.generates = false;
  RETURN_IF_ERROR(Output::CheckWritable(options.output));
  RETURN_IF_ERROR(Output::CheckWritable(options.hidden_states_out));
  ASSIGN_OR_RETURN(const std::vector<InputDocument> inputs, ReadDocuments(options));
  ASSIGN_OR_RETURN(Destination destination, FindDestination(options, inputs));
  ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime, LoadRuntime(options));
  const std::span<const InputDocument> left = std::span(inputs).subspan(destination.done.records);
  ASSIGN_OR_RETURN(const Work work, MakeWork(options, *runtime, left));
  const ReceiptContext receipt{.runtime = runtime.get(), .chunk_size = engine_options.chunk_size};
  ASSIGN_OR_RETURN(Engine engine, Engine::Create(*runtime, engine_options));
  RETURN_IF_ERROR(engine.Check(work.requests));
  RETURN_IF_ERROR(CheckDone(options, destination.done, receipt, inputs));

  std::unique_ptr<Output>& output = destination.output;
  if (output == nullptr) {
    ASSIGN_OR_RETURN(output, Output::Open(options.output));
  } else {
    RETURN_IF_ERROR(output->KeepFirst(destination.done.bytes));
  }
  std::unique_ptr<HiddenStatesFile> hidden_states;
  if (engine_options.hidden_states != ReturnHiddenStates::kNone) {
    ASSIGN_OR_RETURN(hidden_states, HiddenStatesFile::Create(
                                        options.hidden_states_out, engine_options.hidden_states,
                                        engine_options.layers, runtime->config().hidden, work.documents));
  }
  ScoreListener listener(*runtime, work, format, receipt, *output, hidden_states.get(), options.quiet);
  RETURN_IF_ERROR(engine.Run(work.requests, listener));
  if (hidden_states != nullptr) RETURN_IF_ERROR(hidden_states->Close());
  return output->Close();
}

}  // namespace

Command AddScore(CLI::App& app, const std::atomic<bool>& cancelled) {
  CLI::App* command = app.add_subcommand("score", "log-probs of every token of a text");
  auto options = std::make_shared<ScoreOptions>();
  AddModelOption(*command, *options);
  AddPromptOptions(*command, *options);
  command->add_option("-f,--file", options->file,
                      "a text file (one document), or .jsonl (one request a line)");
  command
      ->add_option("--hidden-states", options->hidden_states,
                   "none, last, last_per_device, all, all_normalized or selected_layers")
      ->capture_default_str();
  command->add_option("--layers", options->layers, "layers of selected_layers, 0,5,11");
  command->add_option("--hidden-states-out", options->hidden_states_out, "a .safetensors file for them");
  command->add_option("--stride", options->stride,
                      "score documents longer than the context in windows begun every N tokens");
  command->add_flag("--resume", options->resume,
                    "go on where the interrupted run that wrote --output stopped");
  AddRunOptions(*command, *options);
  AddEngineOptions(*command, *options);
  AddOutputOptions(*command, *options);
  return {.run = [options, &cancelled] { return Run(*options, cancelled); }, .options = options};
}

}  // namespace plumbline::cli

#include <fmt/format.h>

#include "plumbline/cli/commands.h"
#include "plumbline/cli/json_writer.h"
#include "plumbline/cli/options.h"
#include "plumbline/cli/output.h"
#include "plumbline/models/architectures.h"
#include "plumbline/pipelines/checkpoint_text.h"

namespace plumbline::cli {
namespace {

struct TokenizeOptions : RunOptions {
  std::string prompt, file;
  bool no_bos = false;
};

std::string Render(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, Format format) {
  std::string out;
  if (format == Format::kText) {
    for (int32_t id : ids) {
      std::string piece;
      AppendJsonString(piece, tokenizer.TokenBytes(id));
      out += fmt::format("{:8} {}\n", id, piece);
    }
    return out;
  }
  JsonObject object(out, format == Format::kJson);
  AppendJsonArray(object.Field("tokens"), ids, [](std::string& o, int32_t id) { o += std::to_string(id); });
  AppendJsonArray(object.Field("token_strings"), ids,
                  [&](std::string& o, int32_t id) { AppendJsonString(o, tokenizer.TokenBytes(id)); });
  object.Close();
  return out + "\n";
}

Status Run(const TokenizeOptions& options, bool has_prompt) {
  ASSIGN_OR_RETURN(const Format format, ToFormat(options));
  if (has_prompt == !options.file.empty())
    return InvalidInput("input: got both or none of -p and -f, want one");
  RETURN_IF_ERROR(Output::CheckWritable(options.output));
  std::string text = options.prompt;
  if (!has_prompt) {
    ASSIGN_OR_RETURN(text, ReadTextFile(options.file));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(options.model));
  const ModelSource source(*checkpoint);
  ASSIGN_OR_RETURN(const DecoderConfig config, ReadDecoderConfig(source));
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(*checkpoint, config.vocab));
  if (tokenizer == nullptr)
    return InvalidInput("tokenizer: got none, want one beside the weights ({})", options.model);
  ASSIGN_OR_RETURN(const std::unique_ptr<Output> output, Output::Open(options.output));
  RETURN_IF_ERROR(output->Write(Render(*tokenizer, tokenizer->Encode(text, !options.no_bos), format)));
  return output->Close();
}

}  // namespace

Command AddTokenize(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tokenize", "ids and pieces of a text");
  auto options = std::make_shared<TokenizeOptions>();
  AddModelOption(*command, *options);
  AddOutputOptions(*command, *options);
  const CLI::Option* prompt = command->add_option("-p,--prompt", options->prompt, "the text");
  command->add_option("-f,--file", options->file, "a file with the text");
  command->add_flag("--no-bos", options->no_bos, "no special tokens around the text");
  return {.run = [options, prompt] { return Run(*options, prompt->count() > 0); }, .options = nullptr};
}

}  // namespace plumbline::cli

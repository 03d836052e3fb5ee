#include "plumbline/text/regex_splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "plumbline/text/regex_translate.h"

namespace plumbline {
namespace {

struct Free {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};

// Backtracking is paid for: a match is first tried within kCheapLimit steps. Only the few that need more (a
// long run of spaces in the usual patterns) are tried again with eight times the limit, which is charged to
// the budget of the text. Runs do not overlap, so an honest pattern uses about ten steps for a byte.
constexpr uint32_t kCheapLimit = 2000;
constexpr uint64_t kBudget = 10'000'000, kBudgetPerByte = 64;
constexpr uint32_t kHeapLimitKib = 256 * 1024;

}  // namespace

struct RegexSplitter::Code {
  std::unique_ptr<pcre2_code, Free> code;
};

struct RegexSplitter::Scratch::State {
  std::unique_ptr<pcre2_match_data, Free> match;
  std::unique_ptr<pcre2_match_context, Free> context;
  uint32_t limit = 0;
  uint64_t budget = 0;

  void Start(std::string_view text) { budget = kBudget + kBudgetPerByte * text.size(); }

  void SetLimit(uint32_t value) {
    if (limit == value) return;
    limit = value;
    pcre2_set_match_limit(context.get(), value);
  }

  // pcre2_match from `start` within the limits; negative: no match, or given up.
  int Match(const pcre2_code* code, std::string_view text, size_t start) {
    SetLimit(kCheapLimit);
    uint32_t options = PCRE2_NO_UTF_CHECK;
    while (true) {
      const int rc = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start, options,
                                 match.get(), context.get());
      if (rc == PCRE2_ERROR_JIT_STACKLIMIT && !(options & PCRE2_NO_JIT)) {
        options |= PCRE2_NO_JIT;  // the interpreter keeps its backtracking on the heap
        continue;
      }
      const uint64_t next = uint64_t{limit} * 8;
      if (rc != PCRE2_ERROR_MATCHLIMIT || next > budget || next > UINT32_MAX) return rc;
      budget -= next;
      SetLimit(static_cast<uint32_t>(next));
    }
  }
};

RegexSplitter::Scratch::Scratch(const RegexSplitter& splitter) : state_(std::make_unique<State>()) {
  state_->match.reset(pcre2_match_data_create_from_pattern(splitter.code_->code.get(), nullptr));
  state_->context.reset(pcre2_match_context_create(nullptr));
  pcre2_set_heap_limit(state_->context.get(), kHeapLimitKib);
}
RegexSplitter::Scratch::~Scratch() = default;
RegexSplitter::Scratch::Scratch(Scratch&&) noexcept = default;

RegexSplitter::RegexSplitter(std::unique_ptr<Code> code) : code_(std::move(code)) {}
RegexSplitter::~RegexSplitter() = default;
RegexSplitter::RegexSplitter(RegexSplitter&&) noexcept = default;

Result<RegexSplitter> RegexSplitter::Compile(std::string_view pattern) {
  ASSIGN_OR_RETURN(const std::string translated, TranslateRegex(pattern));
  std::unique_ptr<pcre2_compile_context, Free> context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_unique<Code>();
  code->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                                 &offset, context.get()));
  if (code->code == nullptr) {
    char message[256] = {};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof(message));
    return InvalidInput("regular expression: got one that does not compile, want a valid one ({} at byte {})",
                        message, offset);
  }
  // Where there is no JIT compiler the interpreter gives the same matches, slower.
  pcre2_jit_compile(code->code.get(), PCRE2_JIT_COMPLETE);
  return RegexSplitter(std::move(code));
}

void RegexSplitter::Split(std::string_view text, Scratch& scratch,
                          std::vector<std::string_view>& pieces) const {
  Scratch::State& state = *scratch.state_;
  state.Start(text);
  size_t done = 0;             // the pieces so far end here
  size_t from = 0;             // where the next match may start
  size_t last_end = SIZE_MAX;  // of the last match
  const auto add_until = [&](size_t end) {
    if (end > done) pieces.push_back(text.substr(done, end - done));
    done = std::max(done, end);
  };
  while (from <= text.size()) {
    if (state.Match(code_->code.get(), text, from) < 0) break;
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state.match.get());
    const size_t begin = bounds[0], end = bounds[1];
    if (begin == end && end == last_end) {
      // An empty match right after a match does not count: look on one character later.
      ++from;
      while (from < text.size() && (static_cast<uint8_t>(text[from]) & 0xC0) == 0x80) ++from;
      continue;
    }
    add_until(begin);
    add_until(end);
    from = last_end = end;
  }
  add_until(text.size());
}

bool RegexSplitter::Finds(std::string_view text, Scratch& scratch) const {
  scratch.state_->Start(text);
  return scratch.state_->Match(code_->code.get(), text, 0) >= 0;
}

}  // namespace plumbline

// Splitting text by a regular expression, by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "plumbline/base/status.h"

namespace plumbline {

class RegexSplitter {
 public:
  // What one matching thread needs; may be used again for any text of the same splitter.
  class Scratch {
   public:
    explicit Scratch(const RegexSplitter& splitter);
    ~Scratch();
    Scratch(Scratch&&) noexcept;

   private:
    friend class RegexSplitter;
    struct State;
    std::unique_ptr<State> state_;
  };

  // `pattern` is in the syntax of tokenizer.json: see TranslateRegex.
  static Result<RegexSplitter> Compile(std::string_view pattern);
  ~RegexSplitter();
  RegexSplitter(RegexSplitter&&) noexcept;

  // Appends the pieces of `text` (well-formed UTF-8), none empty, together the whole text: the matches, and
  // what lies between them. The work is bounded by a constant times the length: an expression that backtracks
  // beyond that leaves the rest of the text as one piece.
  void Split(std::string_view text, Scratch& scratch, std::vector<std::string_view>& pieces) const;

  // Whether the expression matches anywhere in `text` (well-formed UTF-8), within the same bound.
  bool Finds(std::string_view text, Scratch& scratch) const;

 private:
  struct Code;
  explicit RegexSplitter(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

}  // namespace plumbline

// Errors as values. The library throws nothing, prints nothing and aborts on no input: a fault from
// outside (file, configuration, request, memory) is an Error; a fault only a bug can cause is a CHECK.
#pragma once

#include <fmt/format.h>

#include <expected>
#include <string>
#include <utility>

namespace plumbline {

enum class ErrorCode {
  kInvalidInput,  // the caller gave something that cannot be used; exit code 2
  kFailed,        // the work itself failed (disk full, out of memory); exit code 1
  kCancelled,     // stopped on request (Ctrl-C); exit code 1
};

// `message` is one line: "what: got X, want Y (where)".
struct Error {
  ErrorCode code = ErrorCode::kFailed;
  std::string message;
};

template <typename T>
using Result = std::expected<T, Error>;
using Status = std::expected<void, Error>;

template <typename... Args>
std::unexpected<Error> InvalidInput(fmt::format_string<Args...> format, Args&&... args) {
  return std::unexpected(Error{ErrorCode::kInvalidInput, fmt::format(format, std::forward<Args>(args)...)});
}

template <typename... Args>
std::unexpected<Error> Failed(fmt::format_string<Args...> format, Args&&... args) {
  return std::unexpected(Error{ErrorCode::kFailed, fmt::format(format, std::forward<Args>(args)...)});
}

}  // namespace plumbline

#define PLUMBLINE_CONCAT_INNER(a, b) a##b
#define PLUMBLINE_CONCAT(a, b) PLUMBLINE_CONCAT_INNER(a, b)

// Returns the error of a Status or Result expression from the enclosing function.
#define RETURN_IF_ERROR(expr)                             \
  do {                                                    \
    if (auto status_ = (expr); !status_.has_value()) {    \
      return std::unexpected(std::move(status_).error()); \
    }                                                     \
  } while (false)

// ASSIGN_OR_RETURN(auto x, Expr()): declares or assigns x, or returns Expr's error.
#define ASSIGN_OR_RETURN(lhs, expr) ASSIGN_OR_RETURN_INNER(PLUMBLINE_CONCAT(result_, __LINE__), lhs, expr)
// NOLINTBEGIN(bugprone-macro-parentheses): `result` is a name and `lhs` may be a declaration.
#define ASSIGN_OR_RETURN_INNER(result, lhs, expr)                             \
  auto result = (expr);                                                       \
  if (!result.has_value()) return std::unexpected(std::move(result).error()); \
  lhs = std::move(result).value()
// NOLINTEND(bugprone-macro-parentheses)

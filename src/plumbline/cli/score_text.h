// A scored document for a person: a line a token, the sums, and the attention maxima.
#pragma once

#include <string>

#include "plumbline/cli/result_json.h"

namespace plumbline::cli {

std::string ScoreText(const ScoreRecord& record, const Runtime& runtime);

// [layers][heads] as a table, two decimals.
std::string MaxLogitsText(const RequestResult& result, int64_t heads);

}  // namespace plumbline::cli

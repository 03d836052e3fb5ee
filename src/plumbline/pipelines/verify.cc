#include "plumbline/pipelines/verify.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <span>
#include <utility>

#include "plumbline/base/check.h"
#include "plumbline/base/sha256.h"
#include "plumbline/pipelines/verify_requests.h"

namespace plumbline {
namespace {

// Which words of a quantity are ids.
bool IsId(size_t quantity, size_t word) {
  const std::string_view name = kVerifyQuantities[quantity];
  return name == "generated_tokens" || (name == "top_k" && word % 2 == 0);
}

std::string WordText(size_t quantity, size_t word, uint32_t bits) {
  if (IsId(quantity, word)) return std::to_string(bits);
  return fmt::format("{} (0x{:08x})", std::bit_cast<float>(bits), bits);
}

std::string Differ(const VerifyAnswer& got, const VerifyAnswer& want, size_t request) {
  for (size_t q = 0; q < kVerifyQuantities.size(); ++q) {
    const std::vector<uint32_t>& a = got.words[q];
    const std::vector<uint32_t>& b = want.words[q];
    if (a.size() != b.size()) {
      return fmt::format("{}: got {} words, want {} (request {})", kVerifyQuantities[q], a.size(), b.size(),
                         request);
    }
    const size_t at = std::ranges::mismatch(a, b).in1 - a.begin();
    if (at == a.size()) continue;
    return fmt::format("{}: got {}, want {} (request {}, word {})", kVerifyQuantities[q],
                       WordText(q, at, a[at]), WordText(q, at, b[at]), request, at);
  }
  return "";
}

// The case's answers against the reference's; short_only answered the first of the scored requests alone.
std::string Compare(const VerifyAnswers& got, const VerifyAnswers& want) {
  const std::vector<VerifyAnswer> scored(want.scored.begin(), want.scored.begin() + got.scored.size());
  std::string difference = FirstDifference(got.scored, scored);
  if (!difference.empty()) return "scored " + difference;
  difference = FirstDifference(got.generated, want.generated);
  return difference.empty() ? "" : "generated " + difference;
}

void TakeDigests(const VerifyAnswers& answers, VerifyReport& report) {
  for (size_t q = 0; q < kVerifyQuantities.size(); ++q) {
    Sha256 hash;
    for (const auto* group : {&answers.scored, &answers.generated}) {
      for (const VerifyAnswer& answer : *group) {
        hash.Update(answer.words[q].data(), answer.words[q].size() * sizeof(uint32_t));
      }
    }
    report.digests[q] = hash.HexDigest();
  }
}

}  // namespace

std::vector<VerifyCase> VerifyCases(const RuntimeOptions& options) {
  const VerifyCase reference = {.name = "reference", .threads = options.threads, .isa = options.isa};
  std::vector<VerifyCase> cases = {reference};
  const auto add = [&](std::string name) -> VerifyCase& {
    VerifyCase& next = cases.emplace_back(reference);
    next.name = std::move(name);
    return next;
  };
  for (int threads : {1, 2, 3, 5}) add(fmt::format("threads {}", threads)).threads = threads;
  for (int64_t chunk : {1, 2, 7, 16, 64, 0}) {
    VerifyCase& next = add(chunk > 0 ? fmt::format("chunk {}", chunk) : "chunk all");
    next.chunk_size = chunk;
    next.short_only = chunk == 1 || chunk == 2;
  }
  for (int64_t batch : {1, 2, 7, 8, 31, 33}) {
    VerifyCase& next = add(fmt::format("batch {}", batch));
    next.batch_size = batch;
    next.strangers = true;
  }
  for (int64_t page : {64, 128}) add(fmt::format("page {}", page)).page_size = page;
  for (Isa isa : SupportedIsas()) add(fmt::format("isa {}", Name(isa))).isa = isa;
  return cases;
}

std::string FirstDifference(const std::vector<VerifyAnswer>& got, const std::vector<VerifyAnswer>& want) {
  PLUMBLINE_CHECK(got.size() == want.size());
  for (size_t request = 0; request < got.size(); ++request) {
    std::string difference = Differ(got[request], want[request], request);
    if (!difference.empty()) return difference;
  }
  return "";
}

Status CheckNoNan(const std::vector<VerifyAnswer>& answers) {
  for (size_t request = 0; request < answers.size(); ++request) {
    for (size_t q = 0; q < kVerifyQuantities.size(); ++q) {
      const std::vector<uint32_t>& words = answers[request].words[q];
      for (size_t i = 0; i < words.size(); ++i) {
        if (IsId(q, i) || !std::isnan(std::bit_cast<float>(words[i]))) continue;
        return Failed("{}: got NaN, want a number (request {}, word {})", kVerifyQuantities[q], request, i);
      }
    }
  }
  return {};
}

Result<VerifyReport> Verify(const Runtime& runtime, const std::atomic<bool>* cancelled,
                            const VerifyProgress& progress) {
  VerifyReport report;
  VerifyAnswers reference;
  for (const VerifyCase& how : VerifyCases(runtime.options())) {
    const std::unique_ptr<Runtime> other = runtime.With(how.threads, how.isa);
    ASSIGN_OR_RETURN(VerifyAnswers answers, RunVerifyCase(*other, how, cancelled));
    RETURN_IF_ERROR(CheckNoNan(answers.scored));
    RETURN_IF_ERROR(CheckNoNan(answers.generated));
    std::string difference;
    if (report.cases == 0) {
      TakeDigests(answers, report);
      reference = std::move(answers);
    } else {
      difference = Compare(answers, reference);
    }
    if (!difference.empty() && report.ok) {
      report.ok = false;
      report.difference = fmt::format("{}: {}", how.name, difference);
    }
    ++report.cases;
    RETURN_IF_ERROR(progress(how, difference));
  }
  return report;
}

}  // namespace plumbline

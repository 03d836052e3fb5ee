#include "plumbline/pipelines/verify.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <utility>

#include "plumbline/base/check.h"
#include "plumbline/base/sha256.h"
#include "plumbline/pipelines/verify_requests.h"

namespace plumbline {
namespace {

// Which words of a quantity are ids.
bool IsId(size_t quantity, size_t word) {
  return quantity == kGeneratedTokens || (quantity == kTopK && word % 2 == 0);
}

std::string WordText(size_t quantity, size_t word, uint32_t bits) {
  if (IsId(quantity, word)) return std::to_string(bits);
  return fmt::format("{} (0x{:08x})", std::bit_cast<float>(bits), bits);
}

bool IsObservation(size_t quantity) { return quantity == kHiddenStates || quantity == kMaxLogits; }

std::string Differ(const VerifyAnswer& got, const VerifyAnswer& want, size_t request, bool observed) {
  for (size_t q = 0; q < kVerifyQuantities.size(); ++q) {
    if (!observed && IsObservation(q)) continue;
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

std::string Compare(const VerifyAnswers& got, const VerifyAnswers& want, bool observed) {
  std::string difference = FirstDifference(got.scored, want.scored, observed);
  if (!difference.empty()) return "scored " + difference;
  difference = FirstDifference(got.generated, want.generated, observed);
  return difference.empty() ? "" : "generated " + difference;
}

VerifyDigests TakeDigests(const VerifyAnswers& answers) {
  VerifyDigests digests;
  for (size_t q = 0; q < kVerifyQuantities.size(); ++q) {
    Sha256 hash;
    for (const auto* group : {&answers.scored, &answers.generated}) {
      for (const VerifyAnswer& answer : *group) {
        hash.Update(answer.words[q].data(), answer.words[q].size() * sizeof(uint32_t));
      }
    }
    digests[q] = hash.HexDigest();
  }
  return digests;
}

// A case's first run gives all digests; a further one those in which it differs from the reference.
void AddDigests(const VerifyDigests& got, const VerifyDigests& want, bool observed, VerifyDigests& digests) {
  for (size_t q = 0; q < kVerifyQuantities.size(); ++q) {
    if (digests[q].empty() || ((observed || !IsObservation(q)) && got[q] != want[q])) digests[q] = got[q];
  }
}

// Runs a case; `reference`, empty before the first, becomes the first one's answers.
Result<VerifyCaseReport> RunAndCompare(const Runtime& runtime, const VerifyCase& how,
                                       const std::atomic<bool>* cancelled, VerifyAnswers& reference,
                                       VerifyDigests& reference_digests) {
  VerifyCaseReport report{.how = how, .digests = {}, .difference = ""};
  for (bool observed : {true, false}) {
    if (!observed && !how.unobserved_too) continue;
    ASSIGN_OR_RETURN(VerifyAnswers answers, RunVerifyCase(runtime, how, observed, cancelled));
    RETURN_IF_ERROR(CheckNoNan(answers.scored));
    RETURN_IF_ERROR(CheckNoNan(answers.generated));
    report.rows_reused += answers.rows_reused;
    report.drafts_accepted += answers.drafts_accepted;
    report.drafts_rejected += answers.drafts_rejected;
    const VerifyDigests digests = TakeDigests(answers);
    if (reference.scored.empty()) {
      reference_digests = digests;
      reference = std::move(answers);
    } else if (report.difference.empty()) {
      report.difference = Compare(answers, reference, observed);
    }
    AddDigests(digests, reference_digests, observed, report.digests);
  }
  return report;
}

}  // namespace

std::string FirstDifference(const std::vector<VerifyAnswer>& got, const std::vector<VerifyAnswer>& want,
                            bool observed) {
  PLUMBLINE_CHECK(got.size() == want.size());
  for (size_t request = 0; request < got.size(); ++request) {
    std::string difference = Differ(got[request], want[request], request, observed);
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
  VerifyDigests reference_digests;
  for (const VerifyCase& how : VerifyCases(runtime.options(), runtime.config())) {
    ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> other, how.degrees == runtime.options().degrees
                                                               ? runtime.With(how.threads, how.isa)
                                                               : runtime.With(how.degrees, how.threads));
    ASSIGN_OR_RETURN(VerifyCaseReport done,
                     RunAndCompare(*other, how, cancelled, reference, reference_digests));
    if (!done.difference.empty() && report.ok) {
      report.ok = false;
      report.difference = fmt::format("{} {}: {}", how.axis, how.value, done.difference);
    }
    RETURN_IF_ERROR(progress(done));
    report.cases.push_back(std::move(done));
  }
  return report;
}

}  // namespace plumbline

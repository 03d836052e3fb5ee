// The ways of running requests that verify goes through.
#include <fmt/format.h>

#include <utility>

#include "plumbline/pipelines/verify.h"

namespace plumbline {
namespace {

class CaseList {
 public:
  explicit CaseList(const VerifyCase& reference) : cases_{reference} {}

  VerifyCase& Add(std::string axis, std::string value) {
    VerifyCase& next = cases_.emplace_back(VerifyCase(cases_.front()));
    next.axis = std::move(axis);
    next.value = std::move(value);
    return next;
  }
  std::vector<VerifyCase> Take() { return std::move(cases_); }

 private:
  std::vector<VerifyCase> cases_;
};

void AddPrefixes(CaseList& list) {
  const auto add = [&](std::string value, int64_t known) {
    VerifyCase& next = list.Add("prefix", std::move(value));
    next.known = known;
    next.unobserved_too = true;
  };
  add("cold", 0);
  add("full", VerifyCase::kWhole);
  // Around the edge of a page of 64; of the next page in the mixes.
  for (int64_t cut : {63, 64, 65}) add(fmt::format("cut {}", cut), cut);
}

std::string Describe(const ParallelDegrees& d) {
  std::string text;
  for (const auto& [name, degree] :
       {std::pair{"tp", d.tp}, {"dp", d.dp}, {"pp", d.pp}, {"ep", d.ep}, {"cp", d.cp}}) {
    if (degree > 1) text += fmt::format("{}{} {}", text.empty() ? "" : " ", name, degree);
  }
  return text;
}

// Ranks of one thread. Prefixes and drafts too, where pages and rows lie on several.
void AddRanks(CaseList& list, const DecoderConfig& config) {
  constexpr ParallelDegrees kDegrees[] = {{.tp = 2},
                                          {.tp = 3},
                                          {.tp = 4},
                                          {.dp = 2},
                                          {.dp = 3},
                                          {.pp = 2},
                                          {.cp = 2},
                                          {.cp = 3},
                                          {.tp = 2, .dp = 2},
                                          {.tp = 2, .cp = 2},
                                          {.dp = 2, .pp = 2},
                                          {.pp = 2, .cp = 2},
                                          {.tp = 2, .pp = 2, .cp = 2},
                                          {.tp = 2, .dp = 2, .cp = 2},
                                          {.tp = 2, .ep = 2},
                                          {.dp = 3, .ep = 3},
                                          {.tp = 2, .dp = 2, .ep = 4},
                                          {.tp = 2, .pp = 2, .ep = 2},
                                          {.dp = 2, .pp = 2, .cp = 2, .ep = 2}};
  for (const ParallelDegrees& degrees : kDegrees) {
    if (!CheckDegrees(config, degrees)) continue;
    VerifyCase& next = list.Add("ranks", Describe(degrees));
    next.degrees = degrees;
    next.threads = 1;
    next.chunk_size = 48;
    next.strangers = 2;
    next.known = 65;
    next.drafts = 3;
    next.unobserved_too = true;
  }
}

// Several axes off the reference at once.
void AddMixes(CaseList& list) {
  const std::vector<Isa> isas = SupportedIsas();
  struct Mix {
    int threads;
    int64_t chunk, strangers, page, known;
    int32_t drafts;
  };
  constexpr Mix kMixes[] = {
      {.threads = 3, .chunk = 7, .strangers = 8, .page = 64, .known = 128, .drafts = 3},
      {.threads = 1, .chunk = 64, .strangers = 31, .page = 128, .known = VerifyCase::kWhole, .drafts = 7},
      {.threads = 5, .chunk = 16, .strangers = 2, .page = 64, .known = 129, .drafts = 1},
      {.threads = 2, .chunk = 0, .strangers = 33, .page = 64, .known = 127, .drafts = 2},
  };
  for (size_t i = 0; i < std::size(kMixes); ++i) {
    const Mix& mix = kMixes[i];
    VerifyCase& next = list.Add("mix", std::to_string(i + 1));
    next.threads = mix.threads;
    next.isa = isas[i % isas.size()];
    next.chunk_size = mix.chunk;
    next.page_size = mix.page;
    next.strangers = mix.strangers;
    next.known = mix.known;
    next.drafts = mix.drafts;
    next.unobserved_too = true;
  }
}

}  // namespace

std::vector<VerifyCase> VerifyCases(const RuntimeOptions& options, const DecoderConfig& config) {
  CaseList list({.axis = "reference",
                 .value = "",
                 .threads = options.threads,
                 .isa = options.isa,
                 .degrees = options.degrees,
                 .known = {}});
  for (int threads : {1, 2, 3, 5}) list.Add("threads", std::to_string(threads)).threads = threads;
  for (int64_t chunk : {1, 2, 7, 16, 64, 0}) {
    list.Add("chunk", chunk > 0 ? std::to_string(chunk) : "all").chunk_size = chunk;
  }
  list.Add("strangers", "alone").batch_size = 1;
  for (int64_t strangers : {1, 2, 7, 8, 31, 33}) {
    list.Add("strangers", std::to_string(strangers)).strangers = strangers;
  }
  list.Add("page", "128").page_size = 128;
  AddPrefixes(list);
  for (int32_t drafts : {0, 1, 2, 3, 7}) {
    VerifyCase& next = list.Add("drafts", std::to_string(drafts));
    next.drafts = drafts;
    next.unobserved_too = true;
  }
  for (Isa isa : SupportedIsas()) list.Add("isa", std::string(Name(isa))).isa = isa;
  AddMixes(list);
  if (options.degrees.Ranks() == 1) AddRanks(list, config);
  return list.Take();
}

}  // namespace plumbline

#include "plumbline/pipelines/prefix_reuse.h"

#include <algorithm>
#include <utility>

namespace plumbline {
namespace {

std::span<const int32_t> PageTokens(const Sequence& sequence, int64_t page, int64_t page_size) {
  return std::span(sequence.result.tokens).subspan(page * page_size, page_size);
}

int64_t Pages(const Sequence& sequence) { return static_cast<int64_t>(sequence.prefix.size()); }

PrefixNode* LastNode(const Sequence& sequence) {
  return sequence.prefix.empty() ? nullptr : sequence.prefix.back();
}

// The page's first token that can have a result: the very first of a sequence has none.
int64_t FirstResult(int64_t page, int64_t page_size) { return std::max<int64_t>(1, page * page_size); }

void ReplacePage(KvPagePool& pool, Sequence& sequence, int64_t index, uint32_t page) {
  pool.Release(sequence.pages[index]);
  sequence.pages[index] = page;
}

}  // namespace

PrefixReuse::PrefixReuse(const KvPagePool& pool, bool enabled, int64_t max_idle_bytes)
    : page_size_(pool.page_size()), max_idle_pages_(max_idle_bytes / pool.page_bytes()), enabled_(enabled) {}

// Whether the page brings what the sequence wants of its tokens. Of tokens before score_from nothing is
// wanted.
bool PrefixReuse::Suffices(const PrefixNode& node, const Sequence& sequence) const {
  const int64_t end = (Pages(sequence) + 1) * page_size_;
  if (end <= sequence.request->score_from) return true;
  return node.results.has_value() && node.results->top_k >= sequence.result.top_k;
}

bool PrefixReuse::Acquire(KvPagePool& pool, int64_t count, std::vector<uint32_t>& pages) {
  const int64_t first = static_cast<int64_t>(pages.size());
  const int64_t missing = pool.pages_in_use() + count - pool.max_pages();
  if (missing > cache_.idle_pages()) return false;
  while (!pool.Fits(first, count) && cache_.idle_pages() > 0) pool.Release(cache_.Evict());
  return pool.Acquire(count, pages);
}

bool PrefixReuse::Admit(KvPagePool& pool, Sequence& sequence, int64_t length, bool alone) {
  const int64_t pages = pool.PagesFor(length);
  Extend(pool, sequence);
  // The last known page may have to be copied: Start says.
  const int64_t shared = std::max<int64_t>(0, Pages(sequence) - 1);
  for (int64_t i = 0; i < shared; ++i) sequence.pages.push_back(sequence.prefix[i]->page);
  if (Acquire(pool, pages - shared, sequence.pages)) return true;
  sequence.pages.clear();
  cache_.Release(sequence.prefix);
  // The page to copy can be the one too many. Without a prefix all that is idle can be given up.
  return alone && Acquire(pool, pages, sequence.pages);
}

void PrefixReuse::Extend(KvPagePool& pool, Sequence& sequence) {
  if (!enabled_ || !sequence.reads_prefix) return;
  for (int64_t page = Pages(sequence); (page + 1) * page_size_ <= sequence.prompt_size(); ++page) {
    PrefixNode* node = cache_.Use(LastNode(sequence), PageTokens(sequence, page, page_size_));
    if (node == nullptr) return;
    if (!Suffices(*node, sequence)) return cache_.Release(node);
    if (page > 0 && !sequence.pages.empty())
      ReplacePage(pool, sequence, page - 1, sequence.prefix[page - 1]->page);
    sequence.prefix.push_back(node);
  }
}

bool PrefixReuse::Awaits(const Sequence& sequence, const Sequence& earlier) const {
  if (!enabled_ || !sequence.reads_prefix) return false;
  const int64_t page = Pages(sequence), end = (page + 1) * page_size_;
  if (end > sequence.prompt_size() || end > earlier.prompt_size() || Pages(earlier) > page) return false;
  const bool wants_results = end > sequence.request->score_from;
  const bool brings_results = earlier.result.first_logprob <= FirstResult(page, page_size_) &&
                              earlier.result.top_k >= sequence.result.top_k &&
                              earlier.result.top_k <= kMaxTopK;
  if (wants_results && !brings_results) return false;
  return std::equal(sequence.result.tokens.begin(), sequence.result.tokens.begin() + end,
                    earlier.result.tokens.begin());
}

int64_t PrefixReuse::Start(KvPagePool& pool, Sequence& sequence, std::vector<PageCopy>& copies) {
  sequence.started = true;
  if (sequence.prefix.empty()) return 0;
  const int64_t last = Pages(sequence) - 1, known = (last + 1) * page_size_;
  // Row known - 1 gives the log-prob of token `known`, which the prefix does not know; and the last row of a
  // prompt always runs.
  const int64_t processed =
      std::min(known < sequence.request->score_from ? known : known - 1, sequence.prompt_size() - 1);
  sequence.processed = processed;
  TakeResults(sequence);
  if (processed == known) {
    ReplacePage(pool, sequence, last, sequence.prefix[last]->page);
  } else {
    // A row of the last page runs again: in a copy, since others read the page.
    copies.push_back({.from = sequence.prefix[last]->page, .to = sequence.pages[last]});
    cache_.Release(sequence.prefix.back());
    sequence.prefix.pop_back();
  }
  return processed;
}

void PrefixReuse::TakeResults(Sequence& sequence) const {
  RequestResult& result = sequence.result;
  for (int64_t token = result.first_logprob; token <= sequence.processed; ++token) {
    const PageResults& known = *sequence.prefix[token / page_size_]->results;
    const int64_t entry = token % page_size_;
    result.logprobs.push_back(known.logprobs[entry]);
    result.ranks.push_back(known.ranks[entry]);
    const auto top = known.top.begin() + entry * known.top_k;
    result.top.insert(result.top.end(), top, top + result.top_k);
  }
}

void PrefixReuse::GiveResults(const Sequence& sequence, int64_t page, PrefixNode& node) const {
  const RequestResult& result = sequence.result;
  const int64_t first = FirstResult(page, page_size_), begin = page * page_size_;
  const int64_t scored = result.first_logprob + static_cast<int64_t>(result.ranks.size());
  if (result.first_logprob > first || scored < begin + page_size_ || result.top_k > kMaxTopK) return;
  if (node.results.has_value() && node.results->top_k >= result.top_k) return;
  PageResults& known = node.results.emplace();
  known.top_k = result.top_k;
  known.logprobs.resize(page_size_);
  known.ranks.resize(page_size_);
  known.top.resize(page_size_ * result.top_k);
  const int64_t entry = first - result.first_logprob, count = begin + page_size_ - first;
  std::copy_n(result.logprobs.begin() + entry, count, known.logprobs.begin() + (first - begin));
  std::copy_n(result.ranks.begin() + entry, count, known.ranks.begin() + (first - begin));
  std::copy_n(result.top.begin() + entry * result.top_k, count * result.top_k,
              known.top.begin() + (first - begin) * result.top_k);
}

void PrefixReuse::Publish(KvPagePool& pool, Sequence& sequence) {
  if (!enabled_) return;
  for (int64_t page = Pages(sequence); (page + 1) * page_size_ <= sequence.processed; ++page) {
    const std::span<const int32_t> tokens = PageTokens(sequence, page, page_size_);
    PrefixNode* node = cache_.Use(LastNode(sequence), tokens);
    if (node == nullptr) {
      node = cache_.Insert(LastNode(sequence), tokens, sequence.pages[page]);
    } else {
      ReplacePage(pool, sequence, page, node->page);  // another sequence was first: its page holds the same
    }
    GiveResults(sequence, page, *node);
    sequence.prefix.push_back(node);
  }
}

void PrefixReuse::Retire(KvPagePool& pool, Sequence& sequence) {
  // A sequence that has not started holds a page of its own where the last known one is.
  const int64_t shared = std::max<int64_t>(0, Pages(sequence) - (sequence.started ? 0 : 1));
  sequence.pages.erase(sequence.pages.begin(), sequence.pages.begin() + shared);
  pool.Release(sequence.pages);
  cache_.Release(sequence.prefix);
  while (cache_.idle_pages() > max_idle_pages_) pool.Release(cache_.Evict());
}

}  // namespace plumbline

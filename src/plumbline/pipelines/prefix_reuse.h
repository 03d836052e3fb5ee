// What sequences take from the prefix cache and give to it.
//
// A sequence looks for its prefix, whole pages at a time, until it runs its first row. It takes a page where
// nothing is wanted of the page's tokens but keys and values, or where the page brings their log-probs too; a
// sequence whose attention maxima or hidden states are wanted takes none, for they need every row. Keys,
// values and log-probs of a token depend on the tokens before it only, so what is taken has the bits that
// running would give.
#pragma once

#include <cstdint>
#include <span>

#include "plumbline/pipelines/kv_pages.h"
#include "plumbline/pipelines/prefix_cache.h"
#include "plumbline/pipelines/sequence.h"

namespace plumbline {

// Pages of one replica.
struct PageCopy {
  uint32_t from = 0, to = 0;
};

class PrefixReuse {
 public:
  // Results are cached with at most this many alternatives a token: more would outgrow the keys and values.
  static constexpr int32_t kMaxTopK = 64;

  // Keeps at most max_idle_bytes of pages that no sequence uses. Not `enabled`: nothing is shared or kept.
  PrefixReuse(const KvPagePool& pool, bool enabled, int64_t max_idle_bytes);

  // Gives the sequence, whose request, result and reads_prefix are set, the pages of `length` tokens, those
  // of a known prefix among them; false where memory does not suffice now. `alone`: no other is running.
  bool Admit(KvPagePool& pool, Sequence& sequence, int64_t length, bool alone);

  // Looks on for a prefix of a sequence that has not started.
  void Extend(KvPagePool& pool, Sequence& sequence);

  // Whether the sequence, not started, had better wait: `earlier` is about to run the page it needs next.
  bool Awaits(const Sequence& sequence, const Sequence& earlier) const;

  // The sequence runs from now on: sets what it has processed and the results it needs not compute. Returns
  // the rows this saves. A page whose contents the sequence needs in a page of its own is added to `copies`,
  // to be copied before the next step.
  int64_t Start(KvPagePool& pool, Sequence& sequence, std::vector<PageCopy>& copies);

  // After a step: the pages that the sequence has filled become known, with their results.
  void Publish(KvPagePool& pool, Sequence& sequence);

  // Takes a finished sequence's pages back.
  void Retire(KvPagePool& pool, Sequence& sequence);

 private:
  bool Suffices(const PrefixNode& node, const Sequence& sequence) const;
  bool Acquire(KvPagePool& pool, int64_t count, std::vector<uint32_t>& pages);
  void TakeResults(Sequence& sequence) const;
  void GiveResults(const Sequence& sequence, int64_t page, PrefixNode& node) const;

  int64_t page_size_;
  int64_t max_idle_pages_;
  bool enabled_;
  PrefixCache cache_;
};

}  // namespace plumbline

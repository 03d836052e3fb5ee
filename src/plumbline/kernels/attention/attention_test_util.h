// Sequences with their keys and values, the paged cache that holds them, and what attention must make of
// them.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "plumbline/base/float_env.h"
#include "plumbline/kernels/attention/attention.h"
#include "plumbline/kernels/attention/attention_twin.h"

namespace plumbline {

inline constexpr float kAttentionTestNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kAttentionTestInf = std::numeric_limits<float>::infinity();

struct AttentionShape {
  int64_t head_dim = 64;
  int64_t kv_heads = 2;
  int64_t group = 1;
  int64_t page_size = 64;
  Compute compute = Compute::kBf16;
  int32_t window = 0;
  float softcap = 0.0f;
  bool sinks = false;
  float scale = 0.0f;  // 0: 1 / sqrt(head_dim)

  int64_t heads() const { return kv_heads * group; }
  float ScaleUsed() const { return scale != 0.0f ? scale : 1.0f / std::sqrt(static_cast<float>(head_dim)); }
};

// All of a sequence, whether or not it has been stored yet.
struct TestSequence {
  int64_t length = 0;
  std::vector<float> q = {}, k = {}, v = {};  // [length, heads * head_dim], [length, kv_heads * head_dim]
};

inline TestSequence MakeSequence(const AttentionShape& shape, int64_t length, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  TestSequence sequence{.length = length};
  sequence.q.resize(length * shape.heads() * shape.head_dim);
  sequence.k.resize(length * shape.kv_heads * shape.head_dim);
  sequence.v.resize(sequence.k.size());
  for (std::vector<float>* values : {&sequence.q, &sequence.k, &sequence.v}) {
    for (float& x : *values) x = normal(random);
  }
  return sequence;
}

struct StepPart {
  int64_t sequence = 0;
  int64_t begin = 0;  // rows of the step: positions [begin, end)
  int64_t end = 0;
};

struct StepResult {
  std::vector<float> out = {};        // [rows, heads * head_dim]
  std::vector<float> max_logit = {};  // [parts, heads]
};

// A cache whose pages hold NaN until something is stored, and steps over it.
class AttentionWorld {
 public:
  AttentionWorld(AttentionShape shape, std::vector<TestSequence> sequences)
      : shape_(shape), sequences_(std::move(sequences)) {
    layout_ = {.layers = 2,
               .kv_heads = shape.kv_heads,
               .head_dim = shape.head_dim,
               .page_size = shape.page_size,
               .compute = shape.compute};
    for (const TestSequence& sequence : sequences_) {
      std::vector<void*> pages;
      for (int64_t position = 0; position < std::max<int64_t>(1, sequence.length);
           position += shape.page_size) {
        storage_.push_back(std::make_unique<char[]>(layout_.PageBytes() + 4));
        pages.push_back(storage_.back().get() + 4);  // no more aligned than a word
        std::memset(pages.back(), 0xff, layout_.PageBytes());
      }
      pages_.push_back(std::move(pages));
    }
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (int64_t h = 0; h < shape.heads(); ++h) sinks_.push_back(normal(random));
  }

  const AttentionShape& shape() const { return shape_; }
  const KvLayout& layout() const { return layout_; }
  std::vector<TestSequence>& sequences() { return sequences_; }
  std::vector<float>& sinks() { return sinks_; }
  void* Page(int64_t sequence, int64_t page) { return pages_[sequence][page]; }

  void Store(const KernelContext& context, const std::vector<StepPart>& parts) {
    const int64_t cols = shape_.kv_heads * shape_.head_dim;
    std::vector<float> k, v;
    for (const StepPart& part : parts) {
      const TestSequence& sequence = sequences_[part.sequence];
      k.insert(k.end(), sequence.k.begin() + part.begin * cols, sequence.k.begin() + part.end * cols);
      v.insert(v.end(), sequence.v.begin() + part.begin * cols, sequence.v.begin() + part.end * cols);
    }
    const auto rows = static_cast<int64_t>(k.size()) / cols;
    WithBatch(parts, [&](const PagedBatch& batch) {
      StoreKv(context, layout_, batch, kLayer, {k.data(), rows, cols}, {v.data(), rows, cols});
    });
  }

  // Queries and outputs lie in rows of an odd stride, off any vector alignment; outputs write nothing else.
  StepResult Attend(const KernelContext& context, const std::vector<StepPart>& parts, bool max_logit = true) {
    constexpr int64_t kGap = 5;
    const int64_t cols = shape_.heads() * shape_.head_dim;
    std::vector<float> q(1);
    for (const StepPart& part : parts) {
      for (int64_t position = part.begin; position < part.end; ++position) {
        const auto row = sequences_[part.sequence].q.begin() + position * cols;
        q.insert(q.end(), row, row + cols);
        q.insert(q.end(), kGap, kAttentionTestNan);
      }
    }
    const auto rows = static_cast<int64_t>(q.size()) / (cols + kGap);
    std::vector<float> out(q.size(), kUntouched);
    StepResult result;
    result.max_logit.assign(parts.size() * shape_.heads(), -kAttentionTestInf);
    const AttentionOptions options = {.scale = shape_.ScaleUsed(),
                                      .window = shape_.window,
                                      .softcap = shape_.softcap,
                                      .sinks = shape_.sinks ? sinks_.data() : nullptr,
                                      .max_logit = max_logit ? result.max_logit.data() : nullptr};
    WithBatch(parts, [&](const PagedBatch& batch) {
      Attention(context, layout_, batch, kLayer, shape_.heads(), {q.data() + 1, rows, cols, cols + kGap},
                options, {out.data() + 1, rows, cols, cols + kGap});
    });
    EXPECT_EQ(out[0], kUntouched);
    for (int64_t row = 0; row < rows; ++row) {
      const float* from = &out[1 + row * (cols + kGap)];
      result.out.insert(result.out.end(), from, from + cols);
      for (int64_t i = 0; i < kGap; ++i) EXPECT_EQ(from[cols + i], kUntouched);
    }
    return result;
  }

  StepResult Step(const KernelContext& context, const std::vector<StepPart>& parts) {
    Store(context, parts);
    return Attend(context, parts);
  }

  AttentionTwinRow TwinRow(int64_t sequence_index, int64_t position, int64_t head) const {
    const TestSequence& sequence = sequences_[sequence_index];
    AttentionTwinRow row = {.compute = shape_.compute,
                            .head_dim = shape_.head_dim,
                            .position = position,
                            .window = shape_.window,
                            .scale = shape_.ScaleUsed(),
                            .softcap = shape_.softcap,
                            .sink = shape_.sinks ? &sinks_[head] : nullptr,
                            .q = &sequence.q[(position * shape_.heads() + head) * shape_.head_dim]};
    for (int64_t j = 0; j <= position; ++j) {
      const int64_t at = (j * shape_.kv_heads + head / shape_.group) * shape_.head_dim;
      row.k.push_back(&sequence.k[at]);
      row.v.push_back(&sequence.v[at]);
    }
    return row;
  }

  StepResult Twin(const std::vector<StepPart>& parts) const {
    ScopedFloatEnv env;
    StepResult result;
    result.max_logit.assign(parts.size() * shape_.heads(), -kAttentionTestInf);
    for (size_t part = 0; part < parts.size(); ++part) {
      for (int64_t position = parts[part].begin; position < parts[part].end; ++position) {
        for (int64_t head = 0; head < shape_.heads(); ++head) {
          const size_t at = result.out.size();
          result.out.resize(at + shape_.head_dim);
          AttentionTwin(TwinRow(parts[part].sequence, position, head), &result.out[at],
                        &result.max_logit[part * shape_.heads() + head]);
        }
      }
    }
    return result;
  }

 private:
  static constexpr int64_t kLayer = 1;
  static constexpr float kUntouched = 12345.0f;

  template <typename Fn>
  void WithBatch(const std::vector<StepPart>& parts, Fn&& fn) {
    std::vector<int32_t> offsets = {0}, lengths;
    std::vector<void* const*> pages;
    for (const StepPart& part : parts) {
      offsets.push_back(offsets.back() + static_cast<int32_t>(part.end - part.begin));
      lengths.push_back(static_cast<int32_t>(part.begin));
      pages.push_back(pages_[part.sequence].data());
    }
    fn(PagedBatch{.row_offsets = offsets, .cache_lengths = lengths, .pages = pages});
  }

  AttentionShape shape_;
  KvLayout layout_;
  std::vector<TestSequence> sequences_;
  std::vector<std::unique_ptr<char[]>> storage_;
  std::vector<std::vector<void*>> pages_;
  std::vector<float> sinks_;
};

// Equal bits; a NaN equals any NaN.
inline ::testing::AssertionResult SameBits(const std::vector<float>& got, const std::vector<float>& want) {
  if (got.size() != want.size())
    return ::testing::AssertionFailure() << got.size() << " values, want " << want.size();
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    if (std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(want[i])) continue;
    return ::testing::AssertionFailure() << "value " << i << ": got " << got[i] << ", want " << want[i];
  }
  return ::testing::AssertionSuccess();
}

}  // namespace plumbline

// Unicode data the tokenizer needs beyond what PCRE2 brings: see tools/golden/make_text_tables.py.
#pragma once

#include <span>

namespace plumbline::unicode {

// Code points first..last, unassigned in Unicode 14, and their general category ("Lu") in Unicode 16.
struct CategoryRange {
  char32_t first, last;
  char category[3];
};
std::span<const CategoryRange> LaterCategories();

// Canonical decompositions: (composite, first, second) triples and (character, replacement) pairs, ascending.
std::span<const char32_t> DecompositionPairs();
std::span<const char32_t> DecompositionSingles();
// Composites of DecompositionPairs that NFC takes apart and never puts together.
std::span<const char32_t> NeverComposed();
// (first, last, canonical combining class) triples, ascending, of the characters whose class is not 0.
std::span<const char32_t> CombiningClasses();

}  // namespace plumbline::unicode

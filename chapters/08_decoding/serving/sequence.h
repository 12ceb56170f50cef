/// \file
/// A sequence in the cache: which pages have its keys and values.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "chapters/08_decoding/serving/page_pool.h"
#include "common/attention/spec.h"

namespace flashbook::decoding {

/// Rows of a page that must be copied, of keys and of values, before new ones are written.
struct PageCopy {
  int from, to;
  int rows;  ///< number of rows to copy, from the first on

  bool operator==(const PageCopy&) const = default;
};

/// Tokens whose keys and values are in pages: key i is row i % rows of pages()[i / rows]. Sequences share
/// pages, and copy one only when they write to it. The pool outlives its sequences; a sequence that ends
/// drops its pages.
class Sequence {
 public:
  /// Makes a sequence without tokens.
  explicit Sequence(PagePool& pool) : pool_(&pool) {}
  Sequence(Sequence&& other) noexcept;
  Sequence& operator=(Sequence&& other) noexcept;
  ~Sequence() { reset(); }

  /// Returns a sequence with the same tokens in the same pages. Pages are copied only when one of the two
  /// writes.
  Sequence fork() const;

  /// Makes room for `tokens` more tokens: keys length() ... length() + tokens - 1 may be written after the
  /// call. If the last page has room and another holder, a fresh page takes its place, and its rows so far
  /// must be copied as the result says. Throws OutOfPages, and leaves the sequence unchanged.
  [[nodiscard]] std::optional<PageCopy> append(int tokens);

  /// Keeps the first `length` tokens, none by default, and drops the pages of the others. A speculative
  /// decoder drops rejected drafts this way. Throws std::invalid_argument if `length` exceeds length().
  void reset(int length = 0);

  int length() const { return length_; }
  const std::vector<int>& pages() const { return pages_; }  ///< [ceil(length / rows)]

 private:
  PagePool* pool_;
  std::vector<int> pages_;
  int length_ = 0;
};

/// Describes a batch of sequences to attention: batch, seqlen_k (the longest, at least 1), lengths and the
/// page table, which is -1 where a sequence has no page.
void set_sequences(Spec& spec, const PagePool& pool, std::span<const Sequence* const> sequences);

}  // namespace flashbook::decoding

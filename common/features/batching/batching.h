/// \file
/// How a batch's sequences share a launch for decoding.
#pragma once

namespace flashbook {

struct Batching {
  /// The total number of queries if sequences have different numbers, each at most seqlen_q; a caller's table
  /// gives their starts. Q and O are [queries, heads] or [heads, queries], depending on the strides of heads
  /// and rows; the log-sum-exp is [heads, queries]. 0: every sequence has seqlen_q queries. The oracle does
  /// not support it: compare each sequence separately.
  int packed_queries = 0;
  /// No two blocks share a sequence's keys, so a sequence's result is bitwise the same alone and in any
  /// batch. A decoding step may then leave multiprocessors idle.
  bool unsplit = false;

  bool operator==(const Batching&) const = default;
};

}  // namespace flashbook

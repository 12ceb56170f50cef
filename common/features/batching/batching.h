/// \file
/// How the sequences of a batch share a launch that decodes.
#pragma once

namespace flashbook {

struct Batching {
  /// The total number of queries if sequences have different numbers, up to seqlen_q; a caller's table says
  /// where they begin. Q and O are [queries, heads] or [heads, queries], by the strides of heads and rows;
  /// the log-sum-exp is [heads, queries]. 0: every sequence has seqlen_q. The oracle refuses it: compare
  /// each sequence on its own.
  int packed_queries = 0;
  /// No two blocks share a sequence's keys, so that a sequence's result is bitwise the same alone and in any
  /// batch. A decoding step may then leave multiprocessors idle.
  bool unsplit = false;

  bool operator==(const Batching&) const = default;
};

}  // namespace flashbook

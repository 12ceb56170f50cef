/// \file
/// The times of each step on the book's GPU, from the committed results. The simulator's reports show them,
/// since its own times are unrelated to a GPU's.
#pragma once
#include <span>
#include <string_view>

namespace flashbook {

struct CommittedShape {
  std::string_view what;       ///< "", or "gradient: "
  std::string_view described;  ///< shape as described by describe(Spec)
  std::string_view origin;     ///< "2026-11-28, commit da8f7dc2"
};

struct CommittedRung {
  std::string_view step;  ///< "ch05/pingpong"
  int shape;              ///< index into Committed::shapes
  double seconds;         ///< median time of a launch
  double flops_per_second;
  double memory_bytes;     ///< from the cost model; 0 if unknown
  double workspace_bytes;  ///< 0 if none or unknown
  double factor;           ///< speedup over the previous step at the same sizes; 0 for the first step
};

struct Committed {
  std::string_view card;    ///< "H200"
  std::string_view folder;  ///< name of the results folder
  std::span<const CommittedShape> shapes;
  std::span<const CommittedRung> rungs;

  /// Returns the step's result; null if it was not measured.
  const CommittedRung* find(int chapter, std::string_view slug) const;
  const CommittedShape& shape_of(const CommittedRung& rung) const { return shapes[std::size_t(rung.shape)]; }
};

/// Returns the table that bench/rungs.py generates.
const Committed& committed_results();

}  // namespace flashbook

/// \file
/// What the book's GPU took for each step, from the committed results: for the simulator's rows, whose
/// times say nothing about a GPU.
#pragma once
#include <span>
#include <string_view>

namespace flashbook {

struct CommittedShape {
  std::string_view what;       ///< "", or "gradient: "
  std::string_view described;  ///< as describe(Shape) has it
  std::string_view origin;     ///< "2026-11-28, commit da8f7dc2"
};

struct CommittedRung {
  std::string_view step;  ///< "ch05/step1"
  int shape;              ///< which of Committed::shapes
  double seconds;         ///< a launch's median
  double flops_per_second;
  double memory_bytes;     ///< by the cost model; 0: not known
  double workspace_bytes;  ///< 0: none, or not known
  double factor;           ///< times as fast as the step before at the same sizes; 0 for the first
};

struct Committed {
  std::string_view card;    ///< "H200"
  std::string_view folder;  ///< of the results
  std::span<const CommittedShape> shapes;
  std::span<const CommittedRung> rungs;

  /// The step's result, or null: not every step was measured.
  const CommittedRung* find(int chapter, int step) const;
  const CommittedShape& shape_of(const CommittedRung& rung) const { return shapes[std::size_t(rung.shape)]; }
};

/// The table that bench/rungs.py writes.
const Committed& committed_results();

}  // namespace flashbook

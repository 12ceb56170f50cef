/// \file
/// Reconstructs one row of attention from a step's outputs; no kernel needs support for it.
///
/// The step runs again with different values: V is the identity for one tile of keys, and 0 elsewhere. Then O
/// is the P that the step multiplied. The scores follow from P and the log-sum-exp, and from these the state
/// of online softmax after each tile. The oracle is run in the same way.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "common/app/options.h"

namespace flashbook {

/// Keys per tile of an inspection, regardless of the step's own tiles: at least as many as V has columns.
constexpr int kInspectedKeys = 64;

/// One row, from a step or from the oracle. Keys that the row does not see have scores of -inf and P = 0.
struct InspectedRow {
  std::vector<float> scores, p;     ///< [keys], scaled; P includes all corrections and the final division
  std::vector<float> maximum, sum;  ///< [tiles], running values after each tile; sum of exp(s - maximum)
  std::vector<float> correction;    ///< [tiles], the factor by which a tile multiplies the earlier sum
  std::vector<float> o;             ///< [tiles, head_dim], the value of O if the row ended there
  float lse = 0;                    ///< log-sum-exp of the whole row
  std::vector<float> answer;        ///< [head_dim], O of the whole row as the step returned it
};

/// The result of inspecting a step.
struct Inspection {
  InspectedRow step, oracle;
  std::vector<double> error,
      bound;             ///< [tiles], the largest |P - oracle|, relative to the oracle's sum, and its bound
  int first_wrong = -1;  ///< first tile whose P exceeds its bound; -1 if none
  int first_nan = -1;    ///< first tile whose keys make the log-sum-exp, P or O NaN; -1 if none
  bool ok() const { return first_wrong < 0 && first_nan < 0; }
};

/// Inspects row `query` of head `head` in batch entry `batch`, as computed by `step` of a forward pass.
/// Throws InputError if the chapter computes something else, or supports only latent keys.
Inspection inspect(const Chapter& chapter, const Spec& spec, const Inputs& inputs, const RowOf& row,
                   int step);

/// Prints the inspected row tile by tile, and where it goes wrong.
void print_inspection(std::ostream& out, const Spec& spec, const RowOf& row, const Inspection& found);

/// Writes scores.npy and p.npy [2, keys], maximum.npy, sum.npy and correction.npy [2, tiles], and o.npy [2,
/// tiles, head_dim] to a folder, which it creates: first the step's values, then the oracle's. Throws
/// InputError if it cannot.
void save_inspection(const std::string& folder, const Spec& spec, const Inspection& found);

/// Performs the inspection that `--inspect` requests for every step of `options` that can run. Returns true
/// if all are within their bounds.
bool inspect_steps(std::ostream& out, const Options& options, const Chapter& chapter);

}  // namespace flashbook

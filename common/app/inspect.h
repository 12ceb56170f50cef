/// \file
/// A look inside one row of attention, by what a step answers: no kernel knows of it.
///
/// A step is asked again with other values: V of a tile of keys is the identity, and 0 elsewhere. Then O is
/// P, as the step has multiplied it. Scores follow from P and the log-sum-exp, and from them what online
/// softmax has after each tile. The oracle is asked the same.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "common/app/options.h"

namespace flashbook {

/// Keys of a tile of an inspection, whatever the step's own tiles are: as many as V has columns at least.
constexpr int kInspectedKeys = 64;

/// One row, from a step or from the oracle. Keys that the row does not see have scores of -inf and P = 0.
struct InspectedRow {
  std::vector<float> scores, p;     ///< [keys], scaled; P with all corrections and the last division
  std::vector<float> maximum, sum;  ///< [tiles], running, after each tile; the sum of exp(s - maximum)
  std::vector<float> correction;    ///< [tiles], by which a tile multiplies the sum before it
  std::vector<float> o;             ///< [tiles, head_dim], what O would be if the row ended there
  float lse = 0;                    ///< of the whole row
  std::vector<float> answer;        ///< [head_dim], O of the whole row as it was given
};

/// What an inspection found of a step.
struct Inspection {
  InspectedRow step, oracle;
  std::vector<double> error,
      bound;             ///< [tiles], the largest of |P - oracle|, by the oracle's sum, and what passes
  int first_wrong = -1;  ///< the first tile whose P leaves its bound; -1: none
  int first_nan = -1;    ///< the first tile with whose keys the log-sum-exp, P or O is no number
  bool ok() const { return first_wrong < 0 && first_nan < 0; }
};

/// Row `query` of head `head` of batch entry `batch`, as `step` of a forward pass has it. Throws InputError
/// if the chapter computes something else, or knows latent keys only.
Inspection inspect(const Chapter& chapter, const Shape& shape, const Inputs& inputs, const RowOf& row,
                   int step);

/// Prints it tile by tile, and where it goes wrong.
void print_inspection(std::ostream& out, const Shape& shape, const RowOf& row, const Inspection& found);

/// Writes scores.npy and p.npy [2, keys], maximum.npy, sum.npy and correction.npy [2, tiles], and o.npy [2,
/// tiles, head_dim] into a folder, which it makes: the step's, then the oracle's. Throws InputError if it
/// cannot.
void save_inspection(const std::string& folder, const Shape& shape, const Inspection& found);

/// What `--inspect` asks for: every step of `options` that can run. True if all keep their bounds.
bool inspect_steps(std::ostream& out, const Options& options, const Chapter& chapter);

}  // namespace flashbook

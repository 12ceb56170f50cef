//| # Step 6: the gradient of any mask
//|
//| Chapter 7 computes gradients without a mask or with a causal one. This step handles the masks of steps 1
//| to 5 by transposing them: a block owns a tile of *keys*, so it needs to know which queries see a key,
//| instead of which keys a query sees. The loop is that of chapter 7: five products per round, a producer,
//| two consumers, and threads that let TMA add dQ. Only the source of the tiles of queries is new: a small
//| kernel runs first and writes a list of them for each tile of keys (`step6_transposed.cuh`). This file has
//| the layout of rows, and the kernel that computes D and scales the log-sum-exp.
//|
//| ![Chapter 7's loops over the same tiles. Step 6 is the one on the right: a block owns keys, goes down a
//| column, and adds to dQ](../../docs/figures/backward_loops.svg)
#pragma once
#include "chapters/09_masks/step2_varlen.cuh"
#include "common/hopper/gradient_prepare.h"
#include "common/hopper/gradient_round.h"
#include "common/ptx/dependent_launch.h"

namespace flashbook::masks {

//| ## The layout of rows
//|
//| A sequence is a batch entry, or a document of a packed one. Everything is counted from the beginning of
//| its sequence, as in the forward steps. The workspace, with float sums of dQ and two numbers per row, is
//| laid out in whole tiles. So every document begins with a new tile there, or its last tile would be its
//| neighbour's first. A formula without a sum over earlier documents gives the place. Document b begins at
//| row
//|
//| $$128\,\left(\left\lfloor \mathrm{first\_query}_b / 128 \right\rfloor + b\right)$$
//|
//| (This is FlashAttention's formula.) A document from row $\mathrm{first}$ to row $e$ of the tensor then has
//| $\lfloor e/128 \rfloor - \lfloor \mathrm{first}/128 \rfloor + 1$ tiles, which is at least as many as it
//| needs. All documents together need at most one tile each more than the tensor has.

/// Rows of a sequence in the workspace are a multiple of this: every tile of queries is whole there.
constexpr int kWorkspaceRows = 128;

/// The shape of one launch of step 6, without the mask.
struct GradientProblem : Problem {
  int kv_heads;
  float scale;            ///< factor on the scores, and so on dQ and dK
  float score_offset;     ///< a constant in the log-sum-exp that a function on scores leaves out
  int padded_q;           ///< rows per head in the workspace
  DocumentBounds varlen;  ///< if empty, sequences are batch entries
  MapStrides d_o_map_strides;
  bool in_turns;   ///< whether additions to dQ have a fixed order (step 7)
  int value_dim;   ///< columns of V, O and dV
  Layout at;       ///< the strides of all tensors
  bool stores_dq;  ///< whether a block stores dQ of a sequence that has no other tile of keys

  //| Sums in memory are needed because blocks with different keys add to the same queries. If a packed
  //| sequence's keys fit in one tile, a single block has all of its dQ and rounds it in registers. That saves
  //| clearing the sums, adding to them and reading them again: 16 bytes per element, where dQ itself has 2.
  /// Whether dQ of a sequence is stored by the one block that has its keys, instead of summed.
  __device__ bool is_stored(const Sequence& sequence) const {
    return stores_dq && sequence.keys > 0 && sequence.keys <= kTileKeys;
  }

  /// Returns the first row of a packed sequence, among those of a head in the workspace.
  __device__ int workspace_row_of(int document) const {
    return (varlen.first_query[document] / kWorkspaceRows + document) * kWorkspaceRows;
  }
  /// Returns the first row of a query head in the workspace.
  __device__ int workspace_row(const Head& q) const { return (q.batch * heads + q.head) * padded_q; }

  //| From a row of the workspace back to its query, with a binary search for the document. Rows that the
  //| formula leaves unused belong to no query; `row` is then past the sequence's end.
  /// Returns the sequence of a head's row in the workspace. `row` becomes a number in the sequence, which may
  /// be past its end.
  __device__ Sequence sequence_of(int& row) const {
    if (varlen.count == 0) return {0, seqlen_q, 0, seqlen_k};
    int begin = 0, end = varlen.count - 1;
    while (begin < end) {
      const int middle = (begin + end + 1) / 2;
      if (workspace_row_of(middle) <= row)
        begin = middle;
      else
        end = middle - 1;
    }
    row -= workspace_row_of(begin);
    return varlen.at(begin);
  }
};

/// Returns the first element of a sequence's row of a head, by that tensor's strides. 64 bits: a tensor may
/// have more than 2^31 elements.
__device__ inline int64_t offset_of(const Strides& strides, const Head& head, int row) {
  return head.batch * strides.batch + head.head * strides.head + row * strides.row;
}

//| ## The workspace
//|
//| It holds two floats per query, and its dQ as float sums. Only the lists grow with the square of the
//| length, by one word for each pair of *tiles* that is not skipped.
/// The buffers besides the tensors.
struct GradientWorkspace : hopper::GradientWorkspace {
  int* counters;    ///< tiles that each of two launches has handed out
  int* entries;     ///< number of entries of all lists so far
  int* semaphores;  ///< for step 7: two per 64 rows
};

//| ## D and the log-sum-exp
//|
//| This is chapter 7's kernel, also for packed sequences;
//| [`gradient_prepare.h`](../../common/hopper/gradient_prepare.h) documents what it computes.
//|
//| A softcap's constant is undone here. The forward pass computes $2c / (1 + e^{-2s/c})$ in place of
//| $c \tanh(s/c)$, which differs by $-c$, and adds the $-c$ to the log-sum-exp that it stores. This step
//| recomputes those scores, so it needs their own log-sum-exp.
/// Computes D and the log-sum-exp for every row of a tile of kQueries queries, zeros for dQ and the counters.
/// kHeadDim / 8 lanes share a row. Grid: rows of the workspace / rows of a block. kHeadDim is that of V, and
/// dQ has kDqColumns.
template <typename T, int kHeadDim, int kQueries, int kDqColumns = kHeadDim>
__global__ void __launch_bounds__(kPrepareThreads)
    prepare(const T* o,          // [batch, heads, seqlen_q, kHeadDim], strides problem.at.o
            const T* d_o,        // [batch, heads, seqlen_q, kHeadDim], strides problem.at.d_o
            const float* lse,    // [batch * heads, seqlen_q]
            const float* d_lse,  // [batch * heads, seqlen_q], the gradient of the log-sum-exp; null: 0
            GradientWorkspace workspace, int64_t rows, const __grid_constant__ GradientProblem problem) {
  let_dependents_launch();  // the plan does not depend on this kernel
  if (blockIdx.x + threadIdx.x == 0) workspace.counters[0] = workspace.counters[1] = *workspace.entries = 0;
  const int64_t at = int64_t(blockIdx.x) * kPrepareRows<kHeadDim> + threadIdx.x / (kHeadDim / 8);
  if (problem.in_turns && at < rows && at % kRowsPerWarpgroup == 0 && threadIdx.x % (kHeadDim / 8) < 2)
    workspace.semaphores[at / kRowsPerWarpgroup * 2 + threadIdx.x % (kHeadDim / 8)] = 0;
  //| A row of the workspace belongs to a head and a sequence. If the sequence has no such query, the row is
  //| padding: it gets zeros if it is in the sequence's last tile, and otherwise no kernel reads it. With
  //| short sequences those are half of all rows. The gradient of the log-sum-exp, if the loss uses it, is
  //| subtracted from D: dS = P (dP - D + dlse).
  const int number = int(at / problem.padded_q);
  int row = int(at % problem.padded_q);
  const Sequence sequence = problem.sequence_of(row);
  const bool is_query = at < rows && row < sequence.queries;
  const bool is_in_tile = at < rows && row < ceil_div(sequence.queries, kQueries) * kQueries;
  row += sequence.first_query;
  const auto head_of = [&] { return Head{number % problem.heads, number / problem.heads}; };
  prepare_row<T, kHeadDim, true, kDqColumns>(
      workspace, at, is_in_tile, is_query, [&] { return o + offset_of(problem.at.o, head_of(), row); },
      [&] { return d_o + offset_of(problem.at.d_o, head_of(), row); },
      [&] { return lse[int64_t(number) * problem.seqlen_q + row]; },
      [&] { return d_lse == nullptr ? 0 : d_lse[int64_t(number) * problem.seqlen_q + row]; },
      problem.score_offset, kDqColumns != kHeadDim ? problem.value_dim : problem.head_dim,
      !problem.is_stored(sequence));
}

}  // namespace flashbook::masks

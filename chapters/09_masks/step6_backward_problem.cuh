//| # Step 6: the gradient of any mask
//|
//| Chapter 7 computes gradients without a mask or with a causal one. This step takes the masks of steps 1 to 5, by turning them: a block owns a tile of *keys*, so it asks which queries see a key, and not which keys
//| a query sees. The loop is chapter 7's: five products a round, a producer, two consumers, and threads that have TMA add dQ. New is where the tiles of queries come from: a small kernel
//| runs first and writes a list of them for each tile of keys (`step6_transposed.cuh`). This file says where rows lie, and has the kernel that computes D and scales the log-sum-exp.
//|
//| ![Chapter 7's loops over the same tiles. Step 6 is the one on the right: a block owns keys, goes down a column, and adds to dQ](../../docs/figures/backward_loops.svg)
#pragma once
#include "chapters/09_masks/step2_packed.cuh"
#include "common/ptx/convert.h"

namespace flashbook::masks {

//| ## Where rows lie
//|
//| A sequence is a batch entry, or a document of a packed one. Everything is counted from the beginning of its sequence, as in the forward steps. The workspace is laid out differently
//| from the user's tensors: it has float sums of dQ, in whole tiles, and two numbers for each row. So in the workspace every document begins with a new tile, or its last tile would be its neighbour's first.
//| A formula that needs no sum over the documents before gives the place. Document b begins at row
//|
//| $$128\,\left(\left\lfloor \mathrm{first\_query}_b / 128 \right\rfloor + b\right)$$
//|
//| (FlashAttention has this formula). A document from row $\mathrm{first}$ to row $e$ of the tensor then has $\lfloor e/128 \rfloor - \lfloor \mathrm{first}/128 \rfloor + 1$ tiles, which are at least as many as it
//| needs. All documents together cost at most one tile each more than the tensor has.

/// Rows of a sequence in the workspace are a multiple of this: every tile of queries is whole there.
constexpr int kWorkspaceRows = 128;

/// The shape of one launch of step 6. What is visible is not in it.
struct GradientProblem : Problem {
  int kv_heads;
  float scale;            ///< factor on the scores, and so on dQ and dK
  float left_out;         ///< a constant that a function on scores leaves out, which the log-sum-exp has
  int padded_q;           ///< rows of a head in the workspace
  DocumentBounds packed;  ///< none: sequences are batch entries
  MapUnits d_o_units;
  Layout at;  ///< where rows lie, every stride given

  /// The first row of a packed sequence, among those of a head in the workspace.
  __device__ int workspace_row_of(int document) const {
    return (packed.first_query[document] / kWorkspaceRows + document) * kWorkspaceRows;
  }
  /// The first row of a query head in the workspace.
  __device__ int workspace_row(const Head& q) const { return (q.batch * heads + q.head) * padded_q; }

  //| From a row of the workspace back to its query: the document is searched for by halving. Rows that the formula leaves over belong to no query; `row` is then beyond the sequence's end.
  /// The sequence of a head's row in the workspace. `row` becomes a number in the sequence, which may be
  /// beyond its end.
  __device__ Sequence sequence_of(int& row) const {
    if (packed.count == 0) return {0, seqlen_q, 0, seqlen_k};
    int begin = 0, end = packed.count - 1;
    while (begin < end) {
      const int middle = (begin + end + 1) / 2;
      if (workspace_row_of(middle) <= row)
        begin = middle;
      else
        end = middle - 1;
    }
    row -= workspace_row_of(begin);
    return packed.at(begin);
  }
};

/// The first element of a sequence's row of a head, by that tensor's strides. 64 bits: a tensor may have more
/// than 2^31 elements.
__device__ inline int64_t offset_of(const Strides& strides, const Head& head, int row) {
  return head.batch * strides.batch + head.head * strides.head + row * strides.row;
}

//| ## The workspace
//|
//| For each query two floats, and its dQ as float sums. Only the lists grow with the square of the length, and they have one word for each pair of *tiles* that is not skipped.
/// What lies in memory beside the tensors: rows of [batch, heads, padded_q].
struct GradientWorkspace {
  float* lse;  ///< log-sum-exp * log2(e), without what is left out; +inf where a row sees nothing, or is none
  float* d;    ///< rowsum(dO * O); 0 where a row is none
  float* dq;   ///< [rows, head_dim], sums before the scale, in the order of registers
  int* counter;  ///< of tiles that have been handed out
  int* entries;  ///< how many entries all lists have so far
};

//| ## D and the log-sum-exp
//|
//| This is chapter 7's `prepare`, for packed sequences, too. $D_i = \sum_c dO_{ic}\,O_{ic}$ is what the derivative of the softmax needs of a whole row. The log-sum-exp is multiplied by $\log_2 e$, since P is computed by powers of two. A row that sees
//| nothing, or that belongs to no query, gets $+\infty$: its probabilities are 0, whatever its scores are.
//|
//| A softcap's constant has to be taken back here. Forward computes $2c / (1 + e^{-2s/c})$ in place of $c \tanh(s/c)$, which is the same but for $-c$, and the log-sum-exp that it stores has the $-c$. This step computes
//| the same scores as forward did, so it needs the log-sum-exp of those.
/// What a thread loads at once.
template <typename T>
struct alignas(16) Piece {
  T values[8];
};

constexpr int kPrepareThreads = 256;

/// D and the log-sum-exp for every row of the workspace, zeros for dQ and the counters. kHeadDim / 8 lanes
/// share a row. Grid: rows of the workspace / rows of a block.
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(kPrepareThreads)
    prepare(const T* o,        // [batch, heads, seqlen_q, kHeadDim], strides problem.at.o
            const T* d_o,      // [batch, heads, seqlen_q, kHeadDim], strides problem.at.d_o
            const float* lse,  // [batch * heads, seqlen_q]
            GradientWorkspace workspace, int64_t rows, const __grid_constant__ GradientProblem problem) {
  constexpr float kLog2e = 1.44269504f;
  constexpr int kLanes = kHeadDim / 8;  // of a row: 16 bytes each
  if (blockIdx.x + threadIdx.x == 0) *workspace.counter = *workspace.entries = 0;
  const int64_t at = int64_t(blockIdx.x) * (kPrepareThreads / kLanes) + threadIdx.x / kLanes;
  const int number = int(at / problem.padded_q), lane = threadIdx.x % kLanes;
  int row = int(at % problem.padded_q);
  const Sequence sequence = problem.sequence_of(row);
  const bool is_row = at < rows && row < sequence.queries;
  row += sequence.first_query;
  //| A row of 64 elements is 128 bytes, which 8 lanes load as 16 bytes each. All lanes take part in the shuffles, also those whose row belongs to no query.
  float sum = 0;
  if (is_row) {
    const Head head{number % problem.heads, number / problem.heads};
    const auto a = reinterpret_cast<const Piece<T>*>(o + offset_of(problem.at.o, head, row))[lane];
    const auto b = reinterpret_cast<const Piece<T>*>(d_o + offset_of(problem.at.d_o, head, row))[lane];
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += to_float(a.values[i]) * to_float(b.values[i]);
  }
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(kWholeWarp, sum, distance);
  if (at >= rows) return;
  if (lane == 0) {
    const float l = is_row ? lse[int64_t(number) * problem.seqlen_q + row] : -INFINITY;
    workspace.d[at] = sum;
    workspace.lse[at] = l == -INFINITY ? INFINITY : (l - problem.left_out) * kLog2e;
  }
  //| dQ is summed in memory, so it begins with zeros.
  float4* const dq = reinterpret_cast<float4*>(workspace.dq + at * kHeadDim) + lane;
  dq[0] = dq[kLanes] = make_float4(0, 0, 0, 0);
}

}  // namespace flashbook::masks

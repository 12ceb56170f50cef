//| # Before the products: D and the log-sum-exp
//|
//| This kernel runs first. It reads O and dO once, and leaves two numbers for each query: $D$, and the
//| log-sum-exp in the form that the other kernels need.
//|
//| The derivative of a softmax needs a sum over the whole row:
//| $dS_{ij} = P_{ij}\,(dP_{ij} - \sum_k P_{ik}\,dP_{ik})$. A block that owns a tile of keys sees only a part
//| of the row, so the sum would couple all blocks. But it can be computed beforehand:
//| $\sum_k P_{ik}\,dP_{ik} = \sum_k P_{ik} \sum_c dO_{ic} V_{kc} = \sum_c dO_{ic} O_{ic}$. So $D_i$ is the
//| product of two rows of `head_dim` elements, and costs one pass over O and dO.
//|
//| A loss may also depend on the log-sum-exp. The derivative of the log-sum-exp with respect to a score is
//| that score's probability, so the gradient $g_i$ of row $i$'s log-sum-exp adds $P_{ij}\,g_i$ to $dS_{ij}$.
//| The kernels do this for free: they subtract $D_i - g_i$ where they would subtract $D_i$.
//|
//| ![The five products of a tile and the places of their operands](../../docs/figures/backward_products.svg)
//|
//| **Budget.** The kernel reads two tensors, writes two numbers per row, and sets dQ in float to zero for
//| steps that add to it. It is memory-bound.
#pragma once
#include "common/attention/spec.h"
#include "common/numeric/arithmetic.h"
#include "common/ptx/convert.h"

namespace flashbook::hopper {

/// Returns the strides of all eight tensors.
inline Layout layout_given(const Spec& spec) {
  return {.q = spec.strides(TensorId::q),
          .k = spec.strides(TensorId::k),
          .v = spec.strides(TensorId::v),
          .o = spec.strides(TensorId::o),
          .d_o = spec.strides(TensorId::d_o),
          .dq = spec.strides(TensorId::dq),
          .dk = spec.strides(TensorId::dk),
          .dv = spec.strides(TensorId::dv)};
}

//| ## The workspace
//|
//| The workspace is the memory that a step needs in addition to its inputs and outputs. It has two floats per
//| query, whatever the number of keys. A step whose blocks add to dQ also needs dQ in float, since a 16-bit
//| sum of many parts would lose most of them. No buffer here has the size of the scores, and a test enforces
//| that.
/// Memory in addition to the tensors; its rows are [batch, heads, padded_q].
struct GradientWorkspace {
  float* lse;  ///< log-sum-exp * log2(e); +inf for a row that sees no key or does not exist
  float* d;    ///< rowsum(dO * O) minus the log-sum-exp's gradient; 0 for a row that does not exist
  float* dq;   ///< [rows, head_dim], sums before the scale; for steps that add dQ
};

//| ## A row for a few lanes
//|
//| A row of 64 16-bit elements is 128 bytes, which 8 lanes load as 16 bytes each. So `kHeadDim / 8` lanes
//| share a row, and a warp has four rows, two or one. Each lane sums its own eight products, and shuffles sum
//| over the lanes of a row. A shuffle's distance is below the number of lanes per row, so it never reaches
//| another row.
/// The data that a thread loads at once.
template <typename T>
struct alignas(16) Piece {
  T values[8];
};

constexpr int kPrepareThreads = 256;

/// The number of rows that a block prepares.
template <int kHeadDim>
constexpr int kPrepareRows = kPrepareThreads / (kHeadDim / 8);

//| **Rows that do not exist.** The workspace has whole tiles, so some rows are past the last query. Their
//| lanes load nothing but take part in the shuffles, which name the whole warp. Rows of no tile return only
//| after the shuffles.
/// Prepares row `at` of the workspace, if it `is_in_tile`. `o_row()` and `do_row()` are the query's rows of O
/// and dO, `lse_of()` its log-sum-exp, from which `lse_offset` is subtracted; they are called only if
/// `is_query`. A row has `columns` elements: lanes beyond them load nothing. `d_lse_of()` is the gradient of
/// the row's log-sum-exp. A row of dQ has kDqColumns, if keys are wider than values, and is cleared if it
/// `is_summed`.
template <typename T, int kHeadDim, bool kClearsDq, int kDqColumns = kHeadDim, typename ORow, typename DoRow,
          typename LseOf, typename DLseOf>
__device__ __forceinline__ void prepare_row(const GradientWorkspace& workspace, int64_t at, bool is_in_tile,
                                            bool is_query, const ORow& o_row, const DoRow& do_row,
                                            const LseOf& lse_of, const DLseOf& d_lse_of, float lse_offset = 0,
                                            int columns = kHeadDim, bool is_summed = true) {
  constexpr int kLanes = kHeadDim / 8;  // lanes per row, 16 bytes each
  const int lane = threadIdx.x % kLanes;
  float sum = 0;
  if (is_query && 8 * lane < columns) {
    const auto a = reinterpret_cast<const Piece<T>*>(o_row())[lane];
    const auto b = reinterpret_cast<const Piece<T>*>(do_row())[lane];
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += to_float(a.values[i]) * to_float(b.values[i]);
  }
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(0xffffffff, sum, distance);
  if (!is_in_tile) return;

  //| **The log-sum-exp in powers of two.** The kernels compute $P = 2^{s \cdot \log_2 e\,\cdot scale - L}$,
  //| where $L$ is the log-sum-exp in powers of two, so it is multiplied once here and not for every score.
  //| Two kinds of rows get $L = +\infty$. A query that sees no key has a log-sum-exp of $-\infty$, with which
  //| $-\infty - (-\infty)$ would be NaN. A row past the last query has a score of 0, since its Q is zero;
  //| with $L = 0$ its probability would be 1, and every key would get a gradient from a query that does not
  //| exist. $2^{0 - \infty} = 0$ makes both harmless. The log-sum-exp of such a row depends on no score, so
  //| its gradient is not read: it may be anything, and 0 times NaN is NaN.
  if (lane == 0) {
    const float l = is_query ? lse_of() : -INFINITY;
    workspace.d[at] = l == -INFINITY ? sum : sum - d_lse_of();
    workspace.lse[at] = l == -INFINITY ? INFINITY : (l - lse_offset) * kLog2e;
  }
  //| dQ is summed in memory, so it starts at zero.
  if (kClearsDq && is_summed) {
    float4* const dq = reinterpret_cast<float4*>(workspace.dq + at * kDqColumns) + lane;
#pragma unroll
    for (int i = kDqColumns / 4 - kLanes; i >= 0; i -= kLanes) dq[i] = make_float4(0, 0, 0, 0);
  }
}

}  // namespace flashbook::hopper

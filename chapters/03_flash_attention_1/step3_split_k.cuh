//| # Step 3: tensor cores, warps that split the keys
//|
//| CUDA cores are the bottleneck of step 2. A tensor core multiplies 16 by 16 matrices, one warp at a time,
//| and is [ten times](../00_the_machine/README.md#arithmetic-and-tensor-cores) as fast. CUDA's interface to
//| it is `nvcuda::wmma`: a warp loads a 16 by 16 *fragment* of each operand from shared memory, multiplies
//| them, and stores the result. Which lane holds which element of a fragment is deliberately unspecified. So
//| nothing that involves a row, such as a maximum, can be done in fragments: **scores, weights, statistics
//| and O are in shared memory**, where every thread can find a row.
//|
//| As in the first FlashAttention, four warps share the work on a tile, and each takes a quarter of its
//| *keys*. For the scores this costs nothing, because a warp's keys are columns of $S$. For the product with
//| V it does. Each warp's product is a part of every element of $O$, the sum over its own keys, and the parts
//| have to be added up. That is *split-K*, where K is the summed dimension of a matrix product.
//|
//| ![Split-K: each warp has a quarter of the keys, and a part of all of O](../../docs/figures/split_k.svg)
//|
//| **Budget** at d = 128, with 32 queries and 128 keys per tile: Q 8.5 KB, K and V 34 KB each, scores 17 KB,
//| O 17 KB, 111 KB in all, so two blocks fit on a multiprocessor. At d = 256, K and V take turns in one
//| buffer, and a tile has 64 keys: 92 KB. All versions of the kernel stay below the 163 KB that an A100
//| allows per block.
#pragma once
#include "chapters/03_flash_attention_1/problem.cuh"
#include "common/ptx/cp_async.h"
#include "common/ptx/wmma.h"

namespace flashbook::fa1 {

constexpr int kWarp = 32;      // lanes
constexpr int kFragment = 16;  // rows and columns of a fragment
constexpr int kRowLanes = 8;   // lanes that share a row of the softmax

//| ## Sizes
//|
//| A warp's traffic for O in shared memory does not depend on the number of its keys, so each warp should
//| have many: 32. The sizes are the best of a sweep on an H200 (`TraitsFor` in chapter.cu names them).

/// The sizes of one version of the kernel.
struct SplitKSizes {
  int head_dim, queries, keys;  ///< per tile
  int warps = 4;                ///< per block
};

/// The sizes, and what follows from them.
template <SplitKSizes kSizes>
struct KernelTraits {
  static constexpr int kHeadDim = kSizes.head_dim;
  static constexpr int kRowsQ = kSizes.queries;
  static constexpr int kRowsK = kSizes.keys;
  static constexpr int kWarps = kSizes.warps;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kWarpKeys = kRowsK / kWarps;    ///< keys of a tile per warp
  static constexpr int kWarpDims = kHeadDim / kWarps;  ///< dimensions of O that a warp adds to at a time
  /// One buffer for both would be too slow at d = 64 and 128; two buffers would be too large at 256.
  static constexpr bool kSharesKV = kHeadDim == 256;
  static constexpr bool kOverlaps = true;  ///< false in a study: it waits for every copy at once

  static_assert(kRowsQ % kFragment == 0 && kWarpKeys % kFragment == 0 && kWarpDims % kFragment == 0,
                "a warp works on whole fragments");
  static_assert(kRowsK % (4 * kRowLanes) == 0, "every lane of a row takes as many groups of four scores");
};

//| ## Shared memory layout
//|
//| Rows are padded to avoid bank conflicts. A fragment of 16-bit elements is read 8 rows at a time, 16 bytes
//| per row, and 16 bytes of padding put these rows into different banks. A fragment of floats is written 4
//| rows at a time, 32 bytes per row, and 32 bytes of padding do the same.

/// The tiles of one block.
template <typename T, typename Traits>
struct SplitKTiles {
  static constexpr int kStride = Traits::kHeadDim + 8;     // elements
  static constexpr int kScoreStride = Traits::kRowsK + 8;  // floats
  static constexpr int kWeightStride =
      2 * kScoreStride;  // elements: the weights of a row lie in place of its scores
  static constexpr int kOutputStride = Traits::kHeadDim + 8;  // floats
  __align__(128) T q[Traits::kRowsQ][kStride];
  __align__(128) T k[Traits::kRowsK][kStride];
  __align__(128) T v_if_apart[Traits::kSharesKV ? 1 : Traits::kRowsK][kStride];
  __align__(128) float scores[Traits::kRowsQ][kScoreStride];
  __align__(128) float o[Traits::kRowsQ][kOutputStride];
  float row_max[Traits::kRowsQ], row_sum[Traits::kRowsQ];

  /// Returns the tile of V, by rows.
  __device__ T (*v())[kStride] { return Traits::kSharesKV ? k : v_if_apart; }
  __device__ T* weights(int row) { return reinterpret_cast<T*>(scores[row]); }
};

//| ## Copies in flight
//|
//| `cp.async` copies from device memory to shared memory, bypassing the registers. The thread that issues it
//| does not wait. Later, it *commits* its copies as a group, and `cp_async_wait<n>` returns when at most its
//| $n$ newest groups are still in flight.
//|
//| ![A thread's copies, the groups it makes of them, and what a wait
//| promises](../../docs/figures/cp_async_groups.svg)
/// Starts copying `kRows` rows, of which only `rows` exist; the rest become zeros.
template <typename Traits, int kRows, typename T, int kStride>
__device__ void copy_tile(T (*tile)[kStride],  // [kRows][kStride]
                          const T* source,     // [rows, kHeadDim]
                          int rows) {
  constexpr int kChunks = Traits::kHeadDim / 8;  // 16 bytes each
  static_assert(kRows * kChunks % Traits::kThreads == 0, "every thread copies the same number of chunks");
#pragma unroll 4
  for (int i = threadIdx.x; i < kRows * kChunks; i += Traits::kThreads) {
    const int row = i / kChunks, column = i % kChunks * 8;
    // Zeros, not stale data: a weight of 0 times an old NaN would be NaN.
    cp_async_cg(&tile[row][column], source + int64_t(row) * Traits::kHeadDim + column, row < rows ? 16 : 0);
  }
}

template <typename T>
using FragmentA = nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, T, nvcuda::wmma::row_major>;
template <typename T, typename Layout>
using FragmentB = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, T, Layout>;
using FragmentC = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float>;

//| The three kinds of fragments, the left operand A, the right operand B and the float sums C, are opaque
//| types: which lane holds which element is not specified. `load_matrix_shared` is CUDA's `load_matrix_sync`
//| for an address that is known to be in shared memory; the
//| [appendix](appendix.md#the-first-version-of-step-3) explains what that saves.
/// As many blocks as fit into the shared memory of an H100 or H200: 228 KB, of which each block takes 1 KB
/// more than it requests. The compiler has to leave registers for all of them.
template <typename T, typename Traits>
constexpr int kBlocksPerMultiprocessor = 228 * 1024 / int(sizeof(SplitKTiles<T, Traits>) + 1024);

//| ## Scores: a warp's keys are columns of S
//|
//| Each warp multiplies all queries of the tile by its own keys. K is stored with keys as rows; read as
//| `col_major`, it is $K^\top$, and need not be transposed. The sums stay in fragments over all of head_dim
//| and are stored once.

//| Each fragment of K is loaded once per 16 dimensions and used for all row fragments of Q. Q's fragments are
//| read by all four warps: the first price of split-K.
/// scores = Q K^T for this warp's keys of the tile.
template <typename T, typename Traits>
__device__ void multiply_scores(SplitKTiles<T, Traits>& tiles) {
  using Tiles = SplitKTiles<T, Traits>;
  constexpr int kRowFragments = Traits::kRowsQ / kFragment, kKeyFragments = Traits::kWarpKeys / kFragment;
  const int first_key = threadIdx.x / kWarp * Traits::kWarpKeys;
  FragmentC sums[kRowFragments][kKeyFragments];
  for (auto& row : sums)
    for (auto& sum : row) nvcuda::wmma::fill_fragment(sum, 0.0f);
#pragma unroll 4
  for (int c = 0; c < Traits::kHeadDim; c += kFragment) {
    FragmentB<T, nvcuda::wmma::col_major> k[kKeyFragments];
#pragma unroll
    for (int j = 0; j < kKeyFragments; ++j)
      load_matrix_shared(k[j], &tiles.k[first_key + kFragment * j][c], Tiles::kStride);
#pragma unroll
    for (int i = 0; i < kRowFragments; ++i) {
      FragmentA<T> q;
      load_matrix_shared(q, &tiles.q[kFragment * i][c], Tiles::kStride);
#pragma unroll
      for (int j = 0; j < kKeyFragments; ++j) nvcuda::wmma::mma_sync(sums[i][j], q, k[j], sums[i][j]);
    }
  }
//| The fragments are stored as float, row by row, so that every thread can find a row.
#pragma unroll
  for (int i = 0; i < kRowFragments; ++i)
#pragma unroll
    for (int j = 0; j < kKeyFragments; ++j)
      nvcuda::wmma::store_matrix_sync(&tiles.scores[kFragment * i][first_key + kFragment * j], sums[i][j],
                                      Tiles::kScoreStride, nvcuda::wmma::mem_row_major);
}

//| ## Softmax: eight lanes per row
//|
//| Now the work is divided differently: a warp takes whole rows, four at a time, with eight lanes each. A
//| lane holds every eighth group of four neighbouring scores, so that eight lanes read 128 contiguous bytes,
//| and three shuffles combine a row. All rows of a warp go through each phase together, so one row computes
//| while another waits for its shuffles.
//|
//| The weights of a row overwrite the first half of its scores. That is safe, because by then the lanes have
//| all scores in registers.
//|
//| O is corrected here, in shared memory. A row's maximum rarely changes: about four times in 32 tiles of
//| random scores ([chapter 2](../02_online_softmax/appendix.md#why-it-is-exact)). Otherwise the factor is
//| exactly 1, and the row is neither read nor written.

/// Combines the values of the eight lanes of a row; all of them get the result.
template <typename Combine>
__device__ float reduce_eight(float value, Combine combine) {
  for (int distance = kRowLanes / 2; distance > 0; distance /= 2)
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
  return value;
}

//| The function has four parts, each for all rows of the thread: read the scores and find the maximum;
//| reduce, merge and exponentiate; reduce the sums; write.
/// Turns scores into weights and merges the rows' states with them.
template <typename T, typename Traits>
__device__ void softmax(SplitKTiles<T, Traits>& tiles, const Problem& problem, int first_query,
                        int first_key) {
  constexpr int kRowsAtOnce = Traits::kThreads / kRowLanes, kCount = Traits::kRowsQ / kRowsAtOnce;
  constexpr int kStep = 4 * kRowLanes, kGroups = Traits::kRowsK / kStep;  // groups of four scores per lane
  static_assert(Traits::kRowsQ % kRowsAtOnce == 0, "every warp has the same number of rows");
  const int first_row = threadIdx.x / kRowLanes, column = threadIdx.x % kRowLanes * 4;
  Vector<float, 4> scores[kCount][kGroups];
  float row_max[kCount], row_sum[kCount], correction[kCount];

//| Part 1. A lane loads its scores of a row, scales and masks them, and finds their maximum.
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int row = first_row + kRowsAtOnce * i;
    const int visible = problem.visible_keys(first_query + row) - first_key;
    float tile_max = -INFINITY;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      scores[i][g] = load_vector<float, 4>(&tiles.scores[row][column + kStep * g]);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& score = scores[i][g].element[e];
        score = column + kStep * g + e < visible ? score * problem.scale_log2 : -INFINITY;
        tile_max = fmaxf(tile_max, score);
      }
    }
    row_max[i] = tile_max;
  }
//| Part 2. Eight lanes agree on the tile's maximum and merge it with the row's previous one. Then the weight
//| $2^{s - m}$ replaces the score, in the same register.
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int row = first_row + kRowsAtOnce * i;
    const float tile_max = reduce_eight(row_max[i], [](float a, float b) { return fmaxf(a, b); });
    const Merge merged = merge(tiles.row_max[row], tile_max);
    float tile_sum = 0.0f;
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& score = scores[i][g].element[e];
        score = exp2_approx(score - merged.subtracted);  // 0 for a key that is not seen
        tile_sum += score;
      }
    row_max[i] = merged.row_max;
    row_sum[i] = tile_sum;
    correction[i] = merged.correction;
  }
//| Part 3. The new sum of a row is the previous one, corrected, plus the tile's sum, which the eight lanes
//| reduce in three shuffles.
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    row_sum[i] = tiles.row_sum[first_row + kRowsAtOnce * i] * correction[i] +
                 reduce_eight(row_sum[i], [](float a, float b) { return a + b; });

  //| Part 4. Only here does the warp start to overwrite scores with weights. A warp-level barrier is enough,
  //| because all eight lanes of a row are in one warp.
  __syncwarp();  // every lane has read its rows' scores and numbers before any lane overwrites them
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int row = first_row + kRowsAtOnce * i;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      Vector<T, 4> weights;
#pragma unroll
      for (int e = 0; e < 4; ++e) weights.element[e] = from_float<T>(scores[i][g].element[e]);
      store_vector(tiles.weights(row) + column + kStep * g, weights);
    }
    if (column == 0) tiles.row_max[row] = row_max[i], tiles.row_sum[row] = row_sum[i];
    if (correction[i] != 1.0f)
      for (int c = column; c < Traits::kHeadDim; c += kStep) {
        auto four = load_vector<float, 4>(&tiles.o[row][c]);
        for (float& element : four.element) element *= correction[i];
        store_vector(&tiles.o[row][c], four);
      }
  }
}

//| ## The product with V: parts of O, added up in four rounds
//|
//| Each warp has a part to add to every element of O. If all four warps added at the same time, they would
//| overwrite each other's sums. So O is cut by columns into as many pieces as there are warps, and in each of
//| four rounds, every warp has one piece to itself: it loads the piece into fragments, adds the product of
//| its weights and values, and stores it. Then every warp moves on to the next piece. After four rounds, each
//| warp has added to each piece.
//|
//| This is the price of split-K: O is read and written four times for every tile of keys, and between two
//| rounds, all warps must wait for the slowest.

/// The weights of this warp's keys, in fragments: the same for every piece of O.
template <typename T, typename Traits>
using Weights = FragmentA<T>[Traits::kRowsQ / kFragment][Traits::kWarpKeys / kFragment];

//| One piece: load $O$'s fragments as the initial sums, add the products of 16 keys at a time, and store the
//| fragments back.
/// Adds weights * V over this warp's keys to the piece of O that begins with column `first_dim`. No other
/// warp may use the piece meanwhile.
template <typename T, typename Traits>
__device__ void add_to_piece(SplitKTiles<T, Traits>& tiles, const Weights<T, Traits>& weights,
                             int first_dim) {
  using Tiles = SplitKTiles<T, Traits>;
  constexpr int kRowFragments = Traits::kRowsQ / kFragment, kKeyFragments = Traits::kWarpKeys / kFragment;
  constexpr int kDimFragments = Traits::kWarpDims / kFragment;
  const int first_key = threadIdx.x / kWarp * Traits::kWarpKeys;
  FragmentC sums[kRowFragments][kDimFragments];
#pragma unroll
  for (int i = 0; i < kRowFragments; ++i)
#pragma unroll
    for (int d = 0; d < kDimFragments; ++d)
      nvcuda::wmma::load_matrix_sync(sums[i][d], &tiles.o[kFragment * i][first_dim + kFragment * d],
                                     Tiles::kOutputStride, nvcuda::wmma::mem_row_major);
//| V is stored with keys as rows, as the right operand of this product should be. Each fragment of V serves
//| all row fragments.
#pragma unroll
  for (int j = 0; j < kKeyFragments; ++j)
#pragma unroll
    for (int d = 0; d < kDimFragments; ++d) {
      FragmentB<T, nvcuda::wmma::row_major> v;
      load_matrix_shared(v, &tiles.v()[first_key + kFragment * j][first_dim + kFragment * d], Tiles::kStride);
#pragma unroll
      for (int i = 0; i < kRowFragments; ++i)
        nvcuda::wmma::mma_sync(sums[i][d], weights[i][j], v, sums[i][d]);
    }
#pragma unroll
  for (int i = 0; i < kRowFragments; ++i)
#pragma unroll
    for (int d = 0; d < kDimFragments; ++d)
      nvcuda::wmma::store_matrix_sync(&tiles.o[kFragment * i][first_dim + kFragment * d], sums[i][d],
                                      Tiles::kOutputStride, nvcuda::wmma::mem_row_major);
}

//| The weights of the warp's keys are loaded once and used in all four rounds. A warp's next piece is one
//| that another warp has just finished, hence the barrier after each round.
/// o += weights * V over the keys of all warps. All threads must call it; it ends with a barrier.
template <typename T, typename Traits>
__device__ void add_weighted_values(SplitKTiles<T, Traits>& tiles) {
  const int warp = threadIdx.x / kWarp, first_key = warp * Traits::kWarpKeys;
  Weights<T, Traits> weights;
#pragma unroll
  for (int i = 0; i < Traits::kRowsQ / kFragment; ++i) {
#pragma unroll
    for (int j = 0; j < Traits::kWarpKeys / kFragment; ++j)
      load_matrix_shared(weights[i][j], tiles.weights(kFragment * i) + first_key + kFragment * j,
                         SplitKTiles<T, Traits>::kWeightStride);
  }
#pragma unroll 1  // the code of one round is long enough
  for (int round = 0; round < Traits::kWarps; ++round) {
    add_to_piece(tiles, weights, (warp + round) % Traits::kWarps * Traits::kWarpDims);
    __syncthreads();  // this warp's part is in the piece before the next warp adds to it; at the end, all are
  }
}

//| ## The end of a tile of queries

/// Divides by the sums and writes O and the log-sum-exp, one warp per row.
template <typename T, typename Traits>
__device__ void write_result(SplitKTiles<T, Traits>& tiles,
                             T* o,        // [seqlen_q, kHeadDim], at the head's first row
                             float* lse,  // [seqlen_q]
                             const Problem& problem, int first_query) {
  constexpr int kDims = Traits::kHeadDim / kWarp;  // per lane, adjacent
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  for (int row = warp; row < Traits::kRowsQ && first_query + row < problem.seqlen_q; row += Traits::kWarps) {
    const float factor = inverse_sum(tiles.row_sum[row]);
    const auto sums = load_vector<float, kDims>(&tiles.o[row][kDims * lane]);
    Vector<T, kDims> rounded;
    for (int i = 0; i < kDims; ++i) rounded.element[i] = from_float<T>(sums.element[i] * factor);
    store_vector(o + int64_t(first_query + row) * Traits::kHeadDim + kDims * lane, rounded);
    if (lane == 0) lse[first_query + row] = log_sum_exp(tiles.row_max[row], tiles.row_sum[row]);
  }
}

//| ## The kernel
//|
//| K and V are copied with [`cp.async`](../../common/ptx/cp_async.h) while the block computes. With a buffer
//| each, V is in flight during the scores, and the next K during the softmax and the product with V. With a
//| shared buffer, V can start when the scores are done, and the next K when the product with V is done. The
//| copy of V then hides behind the softmax. The copy of K hides only behind other blocks on the
//| multiprocessor, if there are any.

/// Attention, one block per tile of queries. Grid: (queries / kRowsQ, batch * heads); dynamic shared memory:
/// SplitKTiles.
template <typename T, typename Traits>
__global__ void __launch_bounds__(Traits::kThreads, kBlocksPerMultiprocessor<T, Traits>)
    split_k(const T* q,  // [batch * heads, seqlen_q, kHeadDim]
            const T* k,  // [batch * kv_heads, seqlen_k, kHeadDim]
            const T* v,  // [batch * kv_heads, seqlen_k, kHeadDim]
            T* o,        // [batch * heads, seqlen_q, kHeadDim]
            float* lse,  // [batch * heads, seqlen_q]
            Problem problem) {
  auto& tiles = *dynamic_shared<SplitKTiles<T, Traits>>();
  //| A block knows which keys its tile of queries sees, and copies no others. `copy_keys` always commits a
  //| group, even an empty one, so that counting groups in a wait works in the last iteration, too.
  const int first_query = blockIdx.x * Traits::kRowsQ, head = blockIdx.y;
  const T* q_tile = q + problem.q_row(head, first_query) * Traits::kHeadDim;
  const int visible = problem.visible_keys_of_tile(first_query, Traits::kRowsQ);
  // Starts copying the tile of K or V that begins with `first_key`, if there is one.
  const auto copy_keys = [&](auto* tile, const T* source, int first_key) {
    if (first_key < visible)
      copy_tile<Traits, Traits::kRowsK>(tile, source + problem.k_row(head, first_key) * Traits::kHeadDim,
                                        problem.seqlen_k - first_key);
    cp_async_commit();
    if constexpr (!Traits::kOverlaps) cp_async_wait_all();
  };

  //| Q and the first K are one group. Meanwhile, the block initialises $O$, the maxima and the sums.
  copy_tile<Traits, Traits::kRowsQ>(tiles.q, q_tile, problem.seqlen_q - first_query);
  copy_keys(tiles.k, k, 0);
  constexpr int kStride = SplitKTiles<T, Traits>::kOutputStride;
  for (int i = threadIdx.x; i < Traits::kRowsQ * kStride; i += Traits::kThreads)
    tiles.o[i / kStride][i % kStride] = 0.0f;
  for (int row = threadIdx.x; row < Traits::kRowsQ; row += Traits::kThreads)
    tiles.row_max[row] = -INFINITY, tiles.row_sum[row] = 0.0f;

  for (int first_key = 0; first_key < visible; first_key += Traits::kRowsK) {
    //| **One tile of keys.** Each barrier prevents one hazard, and each copy starts as soon as its
    //| destination is free:
    //|
    //| 1. K has arrived: multiply the scores.
    //| 2. All scores are stored, and K has been read: start copying the next K (or V, if they share a
    //|    buffer), and do the softmax.
    //| 3. V has arrived, the weights are stored, and $O$ is corrected: add to $O$ in four rounds.
    if constexpr (!Traits::kSharesKV) copy_keys(tiles.v(), v, first_key);
    cp_async_wait<Traits::kSharesKV ? 0 : 1>();  // this thread's part of K, the first time also of Q
    __syncthreads();  // all threads' parts have arrived; the first time also O, maxima and sums
    multiply_scores(tiles);
    __syncthreads();  // all scores of a row are there, and K has been read
    if constexpr (Traits::kSharesKV)
      copy_keys(tiles.v(), v, first_key);
    else
      copy_keys(tiles.k, k, first_key + Traits::kRowsK);
    softmax(tiles, problem, first_query, first_key);
    cp_async_wait<Traits::kSharesKV ? 0 : 1>();  // this thread's part of V
    __syncthreads();             // everyone's part and all weights are there, and O is corrected
    add_weighted_values(tiles);  // ends with a barrier: V and the weights have been read
    if constexpr (Traits::kSharesKV) copy_keys(tiles.k, k, first_key + Traits::kRowsK);
  }
  //| If the loop never ran, Q may still be in flight at the end, to memory that the block is about
  //| to give up.
  cp_async_wait_all();
  __syncthreads();  // other threads may have set O, the maxima and the sums
  write_result(tiles, o + problem.q_row(head, 0) * Traits::kHeadDim, lse + problem.q_row(head, 0), problem,
               first_query);
}

}  // namespace flashbook::fa1

//| # Tiles on CUDA cores
//|
//| Steps 1 and 2 do the same work on a tile of queries and a tile of keys: scores, softmax, product with V.
//| They differ in the order of the tiles, and in what has to travel as a result. So this file has the work on
//| one pair of tiles, once.
//|
//| A block has 256 threads, arranged 16 by 16: `ty` counts rows, `tx` columns. In a tile of `kBlock` queries
//| by `kBlock` keys, thread (ty, tx) computes the scores of rows `ty`, `ty + 16`, ... and of keys `tx`,
//| `tx + 16`, ... The 16 threads with the same `ty` share these rows. They are half a warp, so they can
//| combine their numbers by shuffles.
//|
//| ![The sixteen scores of one thread in a tile of 64 by 64, and the rows that it shares with fifteen
//| others](../../docs/figures/thread_tile.svg)
//|
//| **Budget**, for tiles of $B$ rows in 16-bit types: Q, K and V take $6Bd$ bytes of shared memory, and the
//| weights take $4B^2$. O, the maxima and the sums are in registers; O takes $Bd / 256$ per thread. At
//| $B = 64$ and $d = 128$, that is 67 KB and 32 registers.
#pragma once
#include "chapters/03_flash_attention_1/problem.cuh"

namespace flashbook::fa1 {

constexpr int kSide = 16;                // a block is 16 x 16 threads
constexpr int kThreads = kSide * kSide;  // 8 warps
constexpr unsigned kAllLanes = 0xffffffffu;

//| ## Shared memory layout
//|
//| Rows are padded by 8 bytes (16 for floats). A row is a multiple of 128 bytes, so without padding, the same
//| column of every row would be in the same bank, and 16 threads that read 16 rows would be served one after
//| another. With 8 bytes more, each row begins two banks further on, and 16 rows of 8 bytes cover all 32
//| banks once. The other 16 lanes of the warp read the same 16 rows.

/// The tiles of one block.
template <typename T, int kHeadDim, int kBlock>
struct Tiles {
  static constexpr int kStride = kHeadDim + 4;
  static constexpr int kWeightStride = kBlock + 4;
  __align__(16) T q[kBlock][kStride];
  __align__(16) T k[kBlock][kStride];
  __align__(16) T v[kBlock][kStride];
  __align__(16) float weights[kBlock][kWeightStride];
};

//| 256 threads load a tile 8 bytes at a time. Neighbouring threads load neighbouring pieces, so a warp
//| requests whole lines.
/// Loads rows first ... first + kBlock - 1 of a head; those beyond its `rows` rows become zeros. A thread
/// beyond the end reads the last row again and drops the value: a branch around the load would make the
/// compiler wait for one load before it issues the next.
template <typename T, int kHeadDim, int kBlock, int kStride>
__device__ void load_tile(T (&tile)[kBlock][kStride],
                          const T* source,  // [rows, kHeadDim]
                          int first, int rows) {
  constexpr int kVectors = kHeadDim / 4;  // 8 bytes each, because of the padding
#pragma unroll 4
  for (int i = threadIdx.x; i < kBlock * kVectors; i += kThreads) {
    const int row = i / kVectors, column = i % kVectors * 4;
    const bool valid = first + row < rows;
    auto vector = load_vector<T, 4>(source + int64_t(valid ? first + row : rows - 1) * kHeadDim + column);
    for (T& element : vector.element) element = valid ? element : from_float<T>(0.0f);
    store_vector(&tile[row][column], vector);
  }
}

//| ## What a thread holds
//|
//| Each thread holds a part of its rows of the unfinished $O$: the dimensions `4 tx` ... `4 tx + 3` of every
//| 64, because one load of V returns four neighbours. All 16 threads of a row hold the same copy of its
//| maximum and its sum.

/// A thread's share of a tile of queries.
template <int kHeadDim, int kBlock>
struct Rows {
  static constexpr int kCount = kBlock / kSide;  // rows ty + 16 i
  static constexpr int kGroups = kHeadDim / 64;  // groups of four dimensions, 4 tx + 64 g
  float o[kCount][kGroups][4];
  float row_max[kCount], row_sum[kCount];

  /// Sets the empty state.
  __device__ void clear() {
    for (int i = 0; i < kCount; ++i) {
      row_max[i] = -INFINITY, row_sum[i] = 0.0f;
      for (auto& group : o[i])
        for (float& element : group) element = 0.0f;
    }
  }
};

/// Returns a thread's row `i`, as a query of the tile.
__device__ __forceinline__ int tile_row(int i) { return threadIdx.x / kSide + kSide * i; }
/// Returns the first of the four dimensions in a thread's group `g`.
__device__ __forceinline__ int tile_dim(int g) { return 4 * (threadIdx.x % kSide) + 64 * g; }

//| ## One tile of keys for one tile of queries
//|
//| There are three parts: the scores, the merge rule for each row, the product with V. Both products follow
//| chapter 1's pattern: a thread reads a few numbers of each operand and uses each of them several times.
//|
//| In between, the weights go through shared memory, because the thread that computes a weight is not the
//| one that needs it. A row's 16 threads divide its *keys* in the first product and its *dimensions* in
//| the second.

/// scores[i][j] = the product of query row ty + 16 i and key tx + 16 j.
template <typename T, int kHeadDim, int kBlock, int kCount>
__device__ void multiply_scores(const Tiles<T, kHeadDim, kBlock>& tiles, float (&scores)[kCount][kCount]) {
  const int tx = threadIdx.x % kSide;
#pragma unroll 4
  for (int c = 0; c < kHeadDim; c += 4) {
    Vector<T, 4> q[kCount], k[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      q[i] = load_vector<T, 4>(&tiles.q[tile_row(i)][c]);
      k[i] = load_vector<T, 4>(&tiles.k[tx + kSide * i][c]);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e)
#pragma unroll
      for (int i = 0; i < kCount; ++i)
#pragma unroll
        for (int j = 0; j < kCount; ++j)
          scores[i][j] += to_float(q[i].element[e]) * to_float(k[j].element[e]);
  }
}

//| For four dimensions, a thread reads 4 queries and 4 keys, 8 bytes each, and does 64 multiply-adds with
//| them: each number is used four times. The 16 threads with the same `ty` read the same address of Q, which
//| the banks serve once.
//|
//| For the softmax, four shuffles at distances 8, 4, 2 and 1 reach exactly the 16 threads of a row, whose
//| lane numbers differ only in these four bits.
/// Combines the values of the 16 threads of a row; all of them get the result.
template <typename Combine>
__device__ float reduce_row(float value, Combine combine) {
  for (int distance = kSide / 2; distance > 0; distance /= 2)
    value = combine(value, __shfl_xor_sync(kAllLanes, value, distance));
  return value;
}

//| Now the merge rule is applied, row by row. A thread holds four scores of a row, and the tile's maximum
//| needs all 16 threads. Then come the weights $2^{s - m}$, which go to shared memory for the second product,
//| and their sum, again over 16 threads.
/// Turns the scores of each row into weights, in shared memory, and merges the row's state with them.
/// `first_query` and `first_key` are the position of the tile of scores in S.
template <typename T, int kHeadDim, int kBlock, int kCount>
__device__ void softmax(Tiles<T, kHeadDim, kBlock>& tiles, Rows<kHeadDim, kBlock>& rows,
                        float (&scores)[kCount][kCount], const Problem& problem, int first_query,
                        int first_key) {
  const int tx = threadIdx.x % kSide;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    // The causal diagonal, or the last key, may cut through the tile: the row sees this many of its keys.
    const int visible = problem.visible_keys(first_query + tile_row(i)) - first_key;
    float tile_max = -INFINITY;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      scores[i][j] = tx + kSide * j < visible ? scores[i][j] * problem.scale_log2 : -INFINITY;
      tile_max = fmaxf(tile_max, scores[i][j]);
    }
    tile_max = reduce_row(tile_max, [](float a, float b) { return fmaxf(a, b); });

    //| From here on, every number of the row is relative to `merged.row_max`.
    const Merge merged = merge(rows.row_max[i], tile_max);
    float tile_sum = 0.0f;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const float weight = exp2_approx(scores[i][j] - merged.subtracted);  // 0 for a masked key
      tile_sum += weight;
      tiles.weights[tile_row(i)][tx + kSide * j] = weight;
    }
    tile_sum = reduce_row(tile_sum, [](float a, float b) { return a + b; });

    rows.row_max[i] = merged.row_max;
    rows.row_sum[i] = rows.row_sum[i] * merged.correction + tile_sum;
    for (auto& group : rows.o[i])
      for (float& element : group) element *= merged.correction;
  }
}

//| In the second product, thread `tx` has the dimensions `4 tx` to `4 tx + 3` of every 64. It needs all
//| weights of its rows, so it reads them from shared memory, four keys at a time.
/// o += weights * v.
template <typename T, int kHeadDim, int kBlock>
__device__ void add_weighted_values(const Tiles<T, kHeadDim, kBlock>& tiles, Rows<kHeadDim, kBlock>& rows) {
  constexpr int kCount = kBlock / kSide, kGroups = kHeadDim / 64;
#pragma unroll 2
  for (int key = 0; key < kBlock; key += 4) {
    Vector<float, 4> weights[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) weights[i] = load_vector<float, 4>(&tiles.weights[tile_row(i)][key]);
#pragma unroll
    for (int e = 0; e < 4; ++e)
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const auto v = load_vector<T, 4>(&tiles.v[key + e][tile_dim(g)]);
#pragma unroll
        for (int c = 0; c < 4; ++c)
#pragma unroll
          for (int i = 0; i < kCount; ++i) rows.o[i][g][c] += weights[i].element[e] * to_float(v.element[c]);
      }
  }
}

//| This runs the three parts in order. Only half a warp writes and reads the weights of a row, so the two
//| barriers between the parts are *warp* barriers. The block's barrier, which costs more, is in the kernel's
//| loop, where the tiles of K and V change.
/// Merges one tile of keys into a tile of queries. The tiles must be complete in shared memory, and remain
/// there until a barrier after this call.
template <typename T, int kHeadDim, int kBlock>
__device__ void process_tile(Tiles<T, kHeadDim, kBlock>& tiles, Rows<kHeadDim, kBlock>& rows,
                             const Problem& problem, int first_query, int first_key) {
  float scores[kBlock / kSide][kBlock / kSide] = {};
  multiply_scores(tiles, scores);
  // Other threads of this warp may still read the weights of the previous tile. Half a warp shares a row, so
  // a warp barrier prevents this hazard and the next.
  __syncwarp();
  softmax(tiles, rows, scores, problem, first_query, first_key);
  __syncwarp();  // all weights of the warp's rows are stored
  add_weighted_values(tiles, rows);
}

//| The division waits until after the last tile. A row that saw no key has the sum 0, for which `inverse_sum`
//| returns 0, not infinity. One of the 16 threads writes the log-sum-exp.
/// Divides by the sums and writes O and the log-sum-exp of a tile of queries.
template <typename T, int kHeadDim, int kBlock>
__device__ void write_result(const Rows<kHeadDim, kBlock>& rows,
                             T* o,        // [batch * heads, seqlen_q, kHeadDim]
                             float* lse,  // [batch * heads, seqlen_q]
                             const Problem& problem, int head, int first_query) {
  using Own = Rows<kHeadDim, kBlock>;
  for (int i = 0; i < Own::kCount; ++i) {
    const int query = first_query + tile_row(i);
    if (query >= problem.seqlen_q) break;
    const int64_t row = problem.q_row(head, query);
    const float factor = inverse_sum(rows.row_sum[i]);
    for (int g = 0; g < Own::kGroups; ++g) {
      Vector<T, 4> rounded;
      for (int c = 0; c < 4; ++c) rounded.element[c] = from_float<T>(rows.o[i][g][c] * factor);
      store_vector(o + row * kHeadDim + tile_dim(g), rounded);
    }
    if (threadIdx.x % kSide == 0) lse[row] = log_sum_exp(rows.row_max[i], rows.row_sum[i]);
  }
}

}  // namespace flashbook::fa1

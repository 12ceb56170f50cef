//| # Step 5: tensor cores
//|
//| Step 4 issues 64 multiply-adds for 10 loads, so CUDA cores are its bottleneck. [Tensor
//| cores](../00_the_machine/README.md#arithmetic-and-tensor-cores) multiply matrices of 16-bit numbers, ten
//| times as fast with `mma.sync`. CUDA's interface to that instruction is `nvcuda::wmma`: a warp loads a 16
//| by 16 *fragment* of each operand from shared memory, multiplies them, and adds the product to a fragment
//| of floats. A fragment is spread over the registers of all 32 lanes, and CUDA does not specify which lane
//| holds which element.
//|
//| The block and its tile do not change: 256 threads, 128 by 128 results, chunks in shared memory, two
//| barriers per chunk. A thread's 8 by 8 piece becomes a 64 by 32 piece of a *warp*, which is 4 by 2
//| fragments. Step 5 rejects float32, because its operands would be rounded to TF32.
//|
//| ![The tiles of chapter 1: what a block loads, and what a thread or a warp makes of
//| it](../../docs/figures/tiles_ch01.svg)
//|
//| **Budget** at d = 128: two tiles of 128 by 72 elements, 36 KB of shared memory; 8 fragments of sums, 64
//| registers per thread; two blocks per multiprocessor.
#pragma once
#include "chapters/01_naive_attention/problem.cuh"
#include "common/ptx/convert.h"
#include "common/ptx/wmma.h"

namespace flashbook::naive {

constexpr int kWmmaTile = 128;     // queries, and keys or dimensions, per tile: as in step 4
constexpr int kWmmaChunk = 64;     // columns per chunk: twice as many as in step 4, at half the bytes
constexpr int kWmmaThreads = 256;  // 8 warps
constexpr int kFragment = 16;      // rows and columns of a fragment
constexpr int kPad = 8;     // elements, 16 bytes: puts the 8 rows of a fragment's load into different banks
constexpr int kStrip = 32;  // columns of a warp's piece, two fragments: each row is one line when written

/// An operand in shared memory: kRows of kColumns elements, padded.
template <typename T, int kRows, int kColumns>
using Operand = T[kRows][kColumns + kPad];

//| ## Loading
//|
//| Tensor cores use the elements exactly as they are in memory, neither converted nor transposed. So a thread
//| moves 16 bytes at a time, 8 neighbours in a row. As in step 4, threads beyond the last row load that row
//| again, and threads beyond the end of a row load its last elements again.

/// Eight neighbouring elements, moved by one load or store.
template <typename T>
struct __align__(8 * sizeof(T)) Eight {
  T element[8];
};

//| Loads and stores are separate, so that a chunk of both operands is in flight before the first store waits
//| for it. Where the mask ends a row, `store` writes zeros.

/// A thread's share of a chunk of kRows by kColumns elements on its way to shared memory, in eights.
template <typename T, int kRows, int kColumns>
struct Chunk {
  static constexpr int kEights = kColumns / 8, kRowsAtOnce = kWmmaThreads / kEights;
  static_assert(kRows % kRowsAtOnce == 0, "every thread moves the same number of eights");
  const int first_row = threadIdx.x / kEights, column = threadIdx.x % kEights * 8;
  Eight<T> eights[kRows / kRowsAtOnce];

  __device__ Chunk(const T* source,  // [rows, stride], at the chunk's first row and column
                   int stride, int last_row, int last_column) {
#pragma unroll
    for (int i = 0; i < kRows / kRowsAtOnce; ++i) {
      const int row = min(first_row + kRowsAtOnce * i, last_row);
      eights[i] =
          *reinterpret_cast<const Eight<T>*>(source + int64_t(row) * stride + min(column, last_column));
    }
  }

  //| `visible(row)` is how many columns of the chunk a row sees. For Q, K and V it sees all of them, and the
  //| compiler drops the comparison.
  /// tile[row][column] = the chunk's element, or 0 from column visible(row) on.
  template <typename Visible>
  __device__ void store(Operand<T, kRows, kColumns>& tile, Visible visible) {
#pragma unroll
    for (int i = 0; i < kRows / kRowsAtOnce; ++i) {
      const int row = first_row + kRowsAtOnce * i, seen = visible(row) - column;
      for (int e = 0; e < 8; ++e)
        if (e >= seen) eights[i].element[e] = from_float<T>(0.0f);
      *reinterpret_cast<Eight<T>*>(&tile[row][column]) = eights[i];
    }
  }
};

//| ## A warp's piece
//|
//| The 8 warps divide the tile into pieces of 64 by 32, or of 32 by 32 where head_dim 64 makes the tile
//| narrower. A piece is 4 by 2 (or 2 by 2) fragments of sums, which stay in registers from the first chunk to
//| the last, as a thread's 64 sums did in step 4.

template <typename T>
using FragmentA = nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, T, nvcuda::wmma::row_major>;
template <typename T, typename Layout>
using FragmentB = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, T, Layout>;
using FragmentC = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float>;

/// This warp's piece of a tile of kWmmaTile by kColumns, and its sums.
template <int kColumns>
struct Piece {
  static constexpr int kAcross = kColumns / kStrip;                        // pieces side by side
  static constexpr int kRows = kWmmaTile / (kWmmaThreads / 32 / kAcross);  // rows of a piece
  static_assert(kRows % kFragment == 0, "a warp multiplies whole fragments");
  int first_row = threadIdx.x / 32 / kAcross * kRows;
  int first_column = threadIdx.x / 32 % kAcross * kStrip;
  FragmentC sums[kRows / kFragment][2];

  __device__ Piece() {
    for (auto& row : sums)
      for (auto& sum : row) nvcuda::wmma::fill_fragment(sum, 0.0f);
  }
};

//| The inner loop uses two fragments of B for all fragments of A, so 6 loads feed 8 products of 16 by 16
//| by 16. K is stored as `[key][column]`; read as `col_major`, that is $K^\top$. V is `[key][dim]`, as a
//| right operand should be.

/// The piece's sums += its rows of `a` times its columns of B. `b(c, j)`: where B's fragment j of the piece
/// begins at row c of the summed dimension, in shared memory.
template <typename Layout, int kColumns, typename T, int kStride, typename B>
__device__ void multiply_chunk(Piece<kColumns>& piece, const T (&a)[kWmmaTile][kStride], B b, int b_stride) {
#pragma unroll 2  // all four would leave too few registers for the chunks in flight
  for (int c = 0; c < kWmmaChunk; c += kFragment) {
    FragmentB<T, Layout> b_fragment[2];
#pragma unroll
    for (int j = 0; j < 2; ++j)
      load_matrix_shared(b_fragment[j], b(c, piece.first_column + kFragment * j), b_stride);
#pragma unroll
    for (int i = 0; i < piece.kRows / kFragment; ++i) {
      FragmentA<T> a_fragment;
      load_matrix_shared(a_fragment, &a[piece.first_row + kFragment * i][c], kStride);
#pragma unroll
      for (int j = 0; j < 2; ++j)
        nvcuda::wmma::mma_sync(piece.sums[i][j], a_fragment, b_fragment[j], piece.sums[i][j]);
    }
  }
}

//| ## Writing the fragments
//|
//| The mask and the edges depend on rows and columns, but a lane does not know which sums of a fragment it
//| holds. So each warp stores 16 rows of its piece to shared memory, where rows can be found, and writes them
//| out from there. A row of 32 results is one request, 128 bytes of float32. The space comes from the tile
//| `a`, which is no longer needed after the loop's last barrier: 16 of its rows hold 16 rows of 32 floats
//| with their padding, and each of the 8 warps takes 16 rows.

/// Calls write(row of the tile, column of the tile, sum) for every sum of the piece, 32 columns side by side.
template <int kColumns, typename T, int kStride, typename Write>
__device__ void write_piece(Piece<kColumns>& piece, T (&tile)[kWmmaTile][kStride], Write write) {
  constexpr int kStripStride = kStride * sizeof(T) / sizeof(float);
  static_assert(kStripStride >= kStrip, "16 rows of the tile hold 16 rows of a piece");
  const int lane = threadIdx.x % 32;
  float* strip = reinterpret_cast<float*>(tile[threadIdx.x / 32 * kFragment]);  // [16][kStripStride]
#pragma unroll
  for (int i = 0; i < piece.kRows / kFragment; ++i) {
    for (int j = 0; j < 2; ++j)
      nvcuda::wmma::store_matrix_sync(strip + kFragment * j, piece.sums[i][j], kStripStride,
                                      nvcuda::wmma::mem_row_major);
    __syncwarp();  // all 16 rows are stored before any lane reads one
#pragma unroll 4
    for (int row = 0; row < kFragment; ++row)
      write(piece.first_row + kFragment * i + row, piece.first_column + lane,
            strip[row * kStripStride + lane]);
    __syncwarp();  // every lane has read its sums before the next 16 rows overwrite them
  }
}

//| ## Scores
//|
//| This is step 4's kernel, line by line, with other functions to load, multiply and write.

/// S = scale * Q K^T. Grid: (keys / 128, queries / 128, batch * heads).
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(kWmmaThreads, 2)
    wmma_scores(const T* q,     // [batch * heads, seqlen_q, kHeadDim]
                const T* k,     // [batch * kv_heads, seqlen_k, kHeadDim]
                float* scores,  // [batch * heads, seqlen_q, score_stride]
                Problem problem) {
  static_assert(kHeadDim % kWmmaChunk == 0, "head_dim is walked in whole chunks");
  __shared__ __align__(128) Operand<T, kWmmaTile, kWmmaChunk> q_tile;  // [query of the tile][c]
  __shared__ __align__(128) Operand<T, kWmmaTile, kWmmaChunk> k_tile;  // [key of the tile][c]
  const int first_key = blockIdx.x * kWmmaTile, first_query = blockIdx.y * kWmmaTile, head = blockIdx.z;
  const int last_query = min(first_query + kWmmaTile, problem.seqlen_q) - 1;
  if (first_key >= problem.visible_keys(last_query)) return;  // above the diagonal

  //| A column of $K^\top$ is a row of `k_tile`, so K's fragments are `col_major`, and `k_fragment` locates a
  //| fragment by the row of its first key.
  const T* q_rows = q + problem.q_row(head, first_query) * kHeadDim;
  const T* k_rows = k + problem.k_row(head, first_key) * kHeadDim;
  const auto all = [](int) { return kWmmaChunk; };
  const auto k_fragment = [&](int c, int key) { return &k_tile[key][c]; };
  Piece<kWmmaTile> piece;
#pragma unroll 1
  for (int c = 0; c < kHeadDim; c += kWmmaChunk) {
    Chunk<T, kWmmaTile, kWmmaChunk> q_chunk(q_rows + c, kHeadDim, last_query - first_query, kWmmaChunk);
    Chunk<T, kWmmaTile, kWmmaChunk> k_chunk(k_rows + c, kHeadDim, problem.seqlen_k - 1 - first_key,
                                            kWmmaChunk);
    q_chunk.store(q_tile, all);
    k_chunk.store(k_tile, all);
    __syncthreads();  // both chunks are complete before anyone multiplies
    multiply_chunk<nvcuda::wmma::col_major>(piece, q_tile, k_fragment, kWmmaChunk + kPad);
    __syncthreads();  // everyone is done with the chunks before the next ones, or the sums, overwrite them
  }

  write_piece(piece, q_tile, [&](int row, int column, float sum) {
    const int query = first_query + row, key = first_key + column;
    if (query < problem.seqlen_q && key < problem.visible_keys(query))
      scores[problem.q_row(head, query) * problem.score_stride + key] = problem.scale * sum;
  });
}

//| ## The product with V
//|
//| P was written in the tensors' type, so it can be a left operand without conversion. Where a row does not
//| see a key, there is no P, and `store` writes a zero.

/// O = P V. Grid: (head_dim / columns of a tile, queries / 128, batch * heads).
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(kWmmaThreads, 2)
    wmma_output(const T* probabilities,  // [batch * heads, seqlen_q, score_stride]
                const T* v,              // [batch * kv_heads, seqlen_k, kHeadDim]
                T* o,                    // [batch * heads, seqlen_q, kHeadDim]
                Problem problem) {
  // head_dim 256 takes two blocks side by side
  constexpr int kColumns = kHeadDim < kWmmaTile ? kHeadDim : kWmmaTile;
  // [query of the tile][key of the chunk]
  __shared__ __align__(128) Operand<T, kWmmaTile, kWmmaChunk> p_tile;
  __shared__ __align__(128) Operand<T, kWmmaChunk, kColumns> v_tile;  // [key of the chunk][dim of the tile]
  const int first_dim = blockIdx.x * kColumns, first_query = blockIdx.y * kWmmaTile, head = blockIdx.z;
  const int last_query = min(first_query + kWmmaTile, problem.seqlen_q) - 1;
  const int visible = problem.visible_keys(last_query);

  //| The sum runs over the keys that the tile's last query sees. Rows of V beyond them repeat the last one;
  //| they are multiplied by zeros of P.
  const T* p_rows = probabilities + problem.q_row(head, first_query) * problem.score_stride;
  const auto all = [](int) { return kColumns; };
  const auto v_fragment = [&](int c, int dim) { return &v_tile[c][dim]; };
  Piece<kColumns> piece;
  for (int first_key = 0; first_key < visible; first_key += kWmmaChunk) {
    Chunk<T, kWmmaTile, kWmmaChunk> p_chunk(p_rows + first_key, problem.score_stride,
                                            last_query - first_query, problem.score_stride - 8 - first_key);
    Chunk<T, kWmmaChunk, kColumns> v_chunk(v + problem.k_row(head, first_key) * kHeadDim + first_dim,
                                           kHeadDim, visible - 1 - first_key, kColumns);
    p_chunk.store(p_tile, [&](int row) {
      return problem.visible_keys(min(first_query + row, last_query)) - first_key;
    });
    v_chunk.store(v_tile, all);
    __syncthreads();  // both chunks are complete before anyone multiplies
    multiply_chunk<nvcuda::wmma::row_major>(piece, p_tile, v_fragment, kColumns + kPad);
    __syncthreads();  // everyone is done with the chunks before the next ones, or the sums, overwrite them
  }

  //| Sums are rounded to the tensors' type when they are written. Only queries can end inside a tile here.
  write_piece(piece, p_tile, [&](int row, int column, float sum) {
    const int query = first_query + row;
    if (query < problem.seqlen_q)
      o[problem.q_row(head, query) * kHeadDim + first_dim + column] = from_float<T>(sum);
  });
}

}  // namespace flashbook::naive

//| # Step 1: split queries
//|
//| A block of four warps takes 64 queries of one head and loops over the keys in tiles of 64, with a mask in
//| every tile. Each warp owns 16 rows. Shared memory has only what all warps read: Q, K and V.
//|
//| ![The same tile twice: split-K, each warp has a quarter of the keys; split-Q, each warp has a quarter of
//| the queries](../../docs/figures/split_q.svg)
//|
//| Two functions come from files that later sections explain: `round_probabilities` packs scores into the
//| left operand ([warp_tile.cuh](warp_tile.cuh)), and `normalized_softmax` is chapter 3's softmax for a
//| warp's 16 rows ([softmax.cuh](softmax.cuh)).
//|
//| Steps 2 to 4 change one thing each and otherwise keep this code. Compare neighbours with `diff
//| step1_split_q.cuh step2_ldmatrix.cuh`.
//|
//| **Budget** at d = 128: Q 16 KB, K and V 32 KB. Registers per thread: O 64, scores 32, fragments 16.
#pragma once
#include "chapters/04_flash_attention_2/softmax.cuh"

namespace flashbook::fa2 {

//| Tiles are copied as in chapter 3: a load of 16 bytes into registers, a store of 16 bytes to shared memory.
//| The thread waits in between. `#pragma unroll 4` puts four loads in flight before the first store.
/// Copies a tile of kTile rows through registers; rows from `valid_rows` on become zeros.
template <int kHeadDim, typename T>
__device__ __forceinline__ void copy_through_registers(unsigned char* tile,
                                                       const T* rows,  // [valid_rows, kHeadDim]
                                                       int valid_rows) {
  constexpr int kRowBytes = kHeadDim * 2, kPieces = kRowBytes / 16;
#pragma unroll 4
  for (int i = threadIdx.x; i < kTile * kPieces; i += kThreads) {
    const int row = i / kPieces, piece = i % kPieces;
    const uint4 value =
        row < valid_rows ? reinterpret_cast<const uint4*>(rows + row * kHeadDim)[piece] : uint4{};
    *reinterpret_cast<uint4*>(tile + i * 16) = value;
  }
}

//| ## Products by plain loads
//|
//| Lane l is thread t = l % 4 of group g = l / 4. It needs pairs of neighbours along the summed dimension: of
//| rows g and g + 8 of Q, of key g of K, and of dim g of V. Rows are 128 bytes or a multiple, so the eight
//| groups of a warp read the same four banks: an eight-way conflict, which step 2 removes.

/// scores = Q K^T by plain loads; `q_rows` is the warp's first row.
template <typename T, int kHeadDim>
__device__ __forceinline__ void multiply_keys_plain(Blocks<1, kTile / 8>& scores, const unsigned char* q_rows,
                                                    const unsigned char* k_tile) {
  const int group = threadIdx.x % 32 / 4, thread = threadIdx.x % 4;
  const auto pair = [&](const unsigned char* tile, int row, int dim) {
    return *reinterpret_cast<const uint32_t*>(tile + (row * kHeadDim + dim + 2 * thread) * 2);
  };
#pragma unroll
  for (int n = 0; n < kTile / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[0][n][i] = 0;
#pragma unroll
  for (int dim = 0; dim < kHeadDim; dim += 16) {
    const uint32_t a[4] = {pair(q_rows, group, dim), pair(q_rows, group + 8, dim),
                           pair(q_rows, group, dim + 8), pair(q_rows, group + 8, dim + 8)};
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n)
      mma_m16n8k16<T>(scores[0][n], a, pair(k_tile, n * 8 + group, dim), pair(k_tile, n * 8 + group, dim + 8),
                      scores[0][n]);
  }
}

//| For V the pair that belongs in one register is key $2t$ and key $2t + 1$ of the same dim. These two
//| numbers are `kHeadDim` elements apart. So each register costs two loads of 2 bytes, a shift and an or; one
//| `ldmatrix_x4_trans` loads four registers.
/// out += P V for 16 keys by plain loads.
template <typename T, int kHeadDim>
__device__ __forceinline__ void multiply_values_plain(Blocks<1, kHeadDim / 8>& out, const uint32_t (&p)[1][4],
                                                      const unsigned char* v_rows) {
  const int group = threadIdx.x % 32 / 4, thread = threadIdx.x % 4;
  const auto* values = reinterpret_cast<const uint16_t*>(v_rows);
#pragma unroll
  for (int n = 0; n < kHeadDim / 8; ++n) {
    const auto pair = [&](int key) {
      const uint16_t* first = values + (key + 2 * thread) * kHeadDim + n * 8 + group;
      return first[0] | uint32_t(first[kHeadDim]) << 16;
    };
    mma_m16n8k16<T>(out[0][n], p[0], pair(0), pair(8), out[0][n]);
  }
}

//| ## The kernel
//|
//| Shared memory holds Q, then K, then V. `load` copies K and V of a tile.

/// Computes attention by split queries. Grid: (queries / 64, batch * heads); dynamic shared memory:
/// 3 tiles of kTile x kHeadDim.
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(kThreads) split_q(const T* q,  // [batch * heads, seqlen_q, kHeadDim]
                                                    const T* k,  // [batch * kv_heads, seqlen_k, kHeadDim]
                                                    const T* v,  // [batch * kv_heads, seqlen_k, kHeadDim]
                                                    T* o,        // [batch * heads, seqlen_q, kHeadDim]
                                                    float* lse,  // [batch * heads, seqlen_q]
                                                    Problem problem) {
  constexpr int kRowBytes = kHeadDim * 2, kTileBytes = kTile * kRowBytes;
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
  const int head = blockIdx.y, first_query = blockIdx.x * kTile, valid_rows = problem.seqlen_q - first_query;
  const int tiles = ceil_div(problem.seqlen_k, kTile);

  unsigned char* q_tile = dynamic_shared<unsigned char>();  // [kTile, kHeadDim], then O
  unsigned char* k_tile = q_tile + kTileBytes;              // [kTile, kHeadDim]
  unsigned char* v_tile = k_tile + kTileBytes;              // [kTile, kHeadDim]
  q += (problem.q_row(head) + first_query) * kHeadDim;
  o += (problem.q_row(head) + first_query) * kHeadDim;
  k += problem.k_row(head) * kHeadDim;
  v += problem.k_row(head) * kHeadDim;
  const auto load = [&](int tile) {
    const int valid = problem.seqlen_k - tile * kTile;
    copy_through_registers<kHeadDim>(k_tile, k + int64_t(tile) * kTile * kHeadDim, valid);
    copy_through_registers<kHeadDim>(v_tile, v + int64_t(tile) * kTile * kHeadDim, valid);
  };

  copy_through_registers<kHeadDim>(q_tile, q, valid_rows);
  Blocks<1, kHeadDim / 8> out = {};
  RowState<1> rows;
  clear(rows);
  for (int tile = 0; tile < tiles; ++tile) {
    __syncthreads();  // no warp still reads the previous tile
    load(tile);
    __syncthreads();  // the tile has arrived, and Q

    //| Scores of 16 rows by 64 keys are 8 blocks of 4 floats, 32 registers. From here to the end of the loop
    //| nothing is written to shared memory, and no warp waits for another.
    Blocks<1, kTile / 8> scores;
    multiply_keys_plain<T, kHeadDim>(scores, q_tile + warp_row * kRowBytes, k_tile);
    mask(scores, problem, first_query + warp_row, tile * kTile);
    normalized_softmax(scores, out, rows, problem.scale);

#pragma unroll
    for (int step = 0; step < kTile / 16; ++step) {
      //| The second product processes 16 keys at a time.
      uint32_t p[1][4];
      round_probabilities<T>(p, scores, step);
      multiply_values_plain<T, kHeadDim>(out, p, v_tile + step * 16 * kRowBytes);
    }
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    //| At the end, a lane has two rows. Lane 0 of a row's four lanes writes the log-sum-exp. The maximum is
    //| that of *scaled* scores, hence the scale of 1.
    const int row = warp_row + half * 8 + lane / 4;
    if (lane % 4 == 0 && row < valid_rows)
      lse[problem.q_row(head) + first_query + row] = log_sum_exp(rows.max[0][half], rows.sum[0][half], 1.0f);
  }
  store_out<T, kHeadDim>(out, q_tile, warp_row, 0, o, valid_rows);
}

}  // namespace flashbook::fa2

//| # Steps 1 to 4: every warp its own rows
//|
//| Chapter 3's last step splits the *keys* of a tile among the warps of a block. Each warp then holds a part
//| of every row's result, so maxima, sums and $O$ meet in shared memory, with barriers, in every tile.
//| FlashAttention-2 splits the *queries* instead: a warp owns 16 rows and sees all their keys. Scores,
//| probabilities, maxima, sums and $O$ stay in its registers from the first key to the last. Shared memory
//| has only what all warps read: Q, K and V.
//|
//| ![The same tile twice: split-K, each warp has a quarter of the keys; split-Q, each warp has a quarter of
//| the queries](../../docs/figures/split_q.svg)
//|
//| A block takes 64 queries of one head with four warps and goes through the keys in tiles of 64, with a mask
//| in every tile. The four steps share this shape; `if constexpr` leaves only a step's own code in its
//| machine code, and `kStep >= ...` marks what a step adds.
//|
//| 1. **Registers.** `mma.sync`, with its operands read from shared memory by plain loads: 4 bytes for Q and
//|    K, two times 2 for V, whose neighbours along the keys are a row apart.
//| 2. **ldmatrix and a swizzle.** One instruction replaces 4 or 8 loads, and no two rows share a bank.
//| 3. **cp.async.** Tile j + 1 travels while tile j is used, bypassing the registers. The cost is a second
//|    stage of K and V.
//| 4. **Fewer non-matmul FLOPs.** They are few next to the products, but tensor cores do ten times as many
//|    multiply-adds per clock as all other units together. Scale, base change and maximum become one
//|    multiply-add, and $O$ is normalised once at the end. It is rescaled only where a new score exceeds the
//|    old maximum by more than 8 log2 units, a factor of $2^8$.
//|
//| **Budget** at d = 128: Q 16 KB, K and V 32 KB per stage. Registers per thread: O 64, scores 32, fragments
//| 16.
#pragma once
#include "chapters/04_flash_attention_2/softmax.cuh"

namespace flashbook::fa2 {

constexpr int kTile = 64;      // queries of a block and keys of a tile: four warps of 16 rows
constexpr int kThreads = 128;  // four warps

/// Dynamic shared memory of Q and of K and V of each stage.
constexpr int split_q_shared_bytes(int head_dim, int step) {
  return kTile * head_dim * 2 * (step >= 3 ? 5 : 3);
}

//| Steps 1 and 2 copy as chapter 3 did: a load of 16 bytes into registers, a store of 16 bytes to shared
//| memory. The thread waits in between. `#pragma unroll 4` puts four loads in flight before the first store.
/// Copies a tile of kTile rows through registers; rows from `valid_rows` on become zeros.
template <bool kSwizzled, int kHeadDim, typename T>
__device__ __forceinline__ void copy_through_registers(unsigned char* tile,
                                                       const T* rows,  // [valid_rows, kHeadDim]
                                                       int valid_rows) {
  constexpr int kRowBytes = kHeadDim * 2, kPieces = kRowBytes / 16;
#pragma unroll 4
  for (int i = threadIdx.x; i < kTile * kPieces; i += kThreads) {
    const int row = i / kPieces, piece = i % kPieces;
    const uint4 value =
        row < valid_rows ? reinterpret_cast<const uint4*>(rows + row * kHeadDim)[piece] : uint4{};
    *reinterpret_cast<uint4*>(tile + (kSwizzled ? swizzled<kRowBytes>(row, piece) : i * 16)) = value;
  }
}

//| ## Step 1's products
//|
//| Lane l is thread t = l % 4 of group g = l / 4. It needs pairs of neighbours along the summed dimension:
//| for Q of row g and g + 8, for K of key g, for V of dim g. Rows are 128 bytes or a multiple, so the eight
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
//| `ldmatrix_x4_trans` brings four registers.
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

//| ## Softmax as in the first FlashAttention
//|
//| Every score is scaled, every tile's sum is reduced, and O is normalised after every tile. Step 4 replaces
//| it by `row_maxima`, `rescale` and `exponentiate`.

/// Scores become probabilities of the keys so far; out is rescaled to them. Here the maxima are those of
/// scaled scores.
template <int kDimBlocks>
__device__ __forceinline__ void normalized_softmax(Blocks<1, kTile / 8>& scores, Blocks<1, kDimBlocks>& out,
                                                   RowState<1>& rows, float scale) {
#pragma unroll
  for (int n = 0; n < kTile / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[0][n][i] *= scale;
  float maxima[1][2];
  row_maxima(maxima, scores, rows);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float base =
        maxima[0][half] == -INFINITY ? 0 : maxima[0][half];  // a row without a key stays at zeros
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        scores[0][n][i] = __expf(scores[0][n][i] - base);
        sum += scores[0][n][i];
      }
    //| `before` is the old sum, relative to the new maximum. The new sum is `before` plus the tile's. Then
    //| both the probabilities and the old $O$ are divided by the new sum, so that $O$ is right after *every*
    //| tile. Only the last one matters, and step 4 saves all of this.
    const float before = rows.sum[0][half] * __expf(rows.max[0][half] - base);
    rows.sum[0][half] = before + row_total(sum);
    rows.max[0][half] = maxima[0][half];
    const float inverse = rows.sum[0][half] > 0 ? 1 / rows.sum[0][half] : 0;
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) scores[0][n][i] *= inverse;
#pragma unroll
    for (int n = 0; n < kDimBlocks; ++n)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) out[0][n][i] *= before * inverse;
  }
}

//| ## The kernel
//|
//| Shared memory holds Q, then one or two stages, each K with V behind it. `kAsync` decides whether tile $j$
//| goes to stage $j \bmod 2$ or always to the only one. `load` starts copying K and V of a tile, by whichever
//| copy the step uses.

/// Attention by split queries. Grid: (queries / 64, batch * heads); dynamic shared memory:
/// split_q_shared_bytes.
template <typename T, int kHeadDim, int kStep>
__global__ void __launch_bounds__(kThreads) split_q(const T* q,  // [batch * heads, seqlen_q, kHeadDim]
                                                    const T* k,  // [batch * kv_heads, seqlen_k, kHeadDim]
                                                    const T* v,  // [batch * kv_heads, seqlen_k, kHeadDim]
                                                    T* o,        // [batch * heads, seqlen_q, kHeadDim]
                                                    float* lse,  // [batch * heads, seqlen_q]
                                                    Problem problem) {
  constexpr bool kSwizzled = kStep >= 2, kAsync = kStep >= 3, kLean = kStep >= 4;
  constexpr int kRowBytes = kHeadDim * 2, kTileBytes = kTile * kRowBytes;
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
  const int head = blockIdx.y, first_query = blockIdx.x * kTile, valid_rows = problem.seqlen_q - first_query;
  const int tiles = ceil_div(problem.seqlen_k, kTile);

  unsigned char* q_tile = dynamic_shared<unsigned char>();  // [kTile, kHeadDim], then O
  const auto k_tile = [&](int tile) {                       // [kTile, kHeadDim], V's behind it
    return q_tile + kTileBytes * (kAsync ? 1 + tile % 2 * 2 : 1);
  };
  q += (problem.q_row(head) + first_query) * kHeadDim;
  o += (problem.q_row(head) + first_query) * kHeadDim;
  k += problem.k_row(head) * kHeadDim;
  v += problem.k_row(head) * kHeadDim;
  const auto copy = [&](unsigned char* tile, const T* rows, int valid) {
    if constexpr (kAsync)
      copy_tile<true, kTile, kHeadDim, kThreads>(tile, rows, valid);
    else
      copy_through_registers<kSwizzled, kHeadDim>(tile, rows, valid);
  };
  const auto load = [&](int tile) {
    const int valid = problem.seqlen_k - tile * kTile;
    copy(k_tile(tile), k + int64_t(tile) * kTile * kHeadDim, valid);
    copy(k_tile(tile) + kTileBytes, v + int64_t(tile) * kTile * kHeadDim, valid);
  };

  //| Q and the first tile start together. In the asynchronous steps both are one group of copies, so one wait
  //| covers them.
  copy(q_tile, q, valid_rows);
  if constexpr (kAsync) {
    load(0);
    cp_async_commit();
  }
  Blocks<1, kHeadDim / 8> out = {};
  RowState<1> rows;
  clear(rows);
  for (int tile = 0; tile < tiles; ++tile) {
    if constexpr (kAsync) {
      //| **One barrier per tile.** Each thread waits for its own copies, then the barrier makes all threads'
      //| copies visible. The same barrier ensures that every warp has finished tile $j - 1$, so tile $j + 1$
      //| may now be copied into that stage. The order matters: a copy issued *before* the barrier would
      //| overwrite rows that a slower warp still reads.
      //|
      //| ![A thread's copies, the groups it makes of them, and what a wait
      //| promises](../../docs/figures/cp_async_groups.svg)
      cp_async_wait<0>();
      __syncthreads();  // the tile is in, and no warp still reads the stage that the next one overwrites
      if (tile + 1 < tiles) load(tile + 1);
      cp_async_commit();
    } else {
      __syncthreads();  // no warp still reads the tile before
      load(tile);
      __syncthreads();  // the tile is in, and Q
    }

    //| Scores of 16 rows by 64 keys: 8 blocks of 4 floats, 32 registers. From here to the end of the loop
    //| nothing is written to shared memory, and no warp waits for another.
    Blocks<1, kTile / 8> scores;
    if constexpr (kSwizzled)
      multiply_keys<T, kHeadDim, 0, kTile / 8>(scores, k_tile(tile), [&](uint32_t(&a)[1][4], int step) {
        load_rows<kHeadDim>(a, q_tile, warp_row, step);
      });
    else
      multiply_keys_plain<T, kHeadDim>(scores, q_tile + warp_row * kRowBytes, k_tile(tile));
    mask(scores, problem, first_query + warp_row, tile * kTile);

    //| Step 4's four lines against step 3's one function: instead of a chain of dependent operations, each
    //| score costs a maximum, a multiply-add, an `exp2` and a sum.
    if constexpr (kLean) {
      float maxima[1][2], offsets[1][2];
      row_maxima(maxima, scores, rows);
      rescale<true>(maxima, out, rows, problem.scale_log2e);
      subtract_maxima<true, kHeadDim != 256>(offsets, scores, rows, problem.scale_log2e);
      exponentiate<0, kTile / 8>(scores, offsets, rows.sum, problem.scale_log2e);
    } else {
      normalized_softmax(scores, out, rows, problem.scale);
    }

#pragma unroll
    for (int step = 0; step < kTile / 16; ++step) {
      //| The second product, 16 keys at a time.
      uint32_t p[1][4];
      round_probabilities<T>(p, scores, step);
      const unsigned char* v_rows = k_tile(tile) + kTileBytes + step * 16 * kRowBytes;
      if constexpr (kSwizzled)
        multiply_values<T, kHeadDim>(out, p, v_rows);
      else
        multiply_values_plain<T, kHeadDim>(out, p, v_rows);
    }
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    //| The end: two rows per lane. Lane 0 of a row's four lanes writes the log-sum-exp. In steps 1 to 3 the
    //| maximum is one of *scaled* scores, hence the scale 1. In step 4 the division by the sum happens here,
    //| for the first and only time.
    const int row = warp_row + half * 8 + lane / 4;
    const float sum = kLean ? row_total(rows.sum[0][half]) : rows.sum[0][half];
    if (lane % 4 == 0 && row < valid_rows)
      lse[problem.q_row(head) + first_query + row] =
          log_sum_exp(rows.max[0][half], sum, kLean ? problem.scale : 1.0f);
    if (kLean) normalize(out[0], half, sum);
  }
  store_out<T, kHeadDim>(out, q_tile, warp_row, 0, o, valid_rows);
}

}  // namespace flashbook::fa2

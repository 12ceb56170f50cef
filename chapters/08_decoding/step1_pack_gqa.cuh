//| # Steps 1 to 3: chapter 5's method, a group in one tile, keys split
//|
//| One kernel, launched in three ways.
//|
//| * **Step 1** is chapter 5's method with one query: a block per query head, a tile of 64 rows of which one
//|   is used. Keys and values are loaded once per *query* head. One sequence of 32 heads leaves 100 of 132
//|   multiprocessors idle.
//| * **Step 2** packs a group's heads into the rows of one tile. The products cost the same, since a tile has
//|   64 rows anyway, but K and V are loaded only once per *key* head.
//| * **Step 3** gives each block a part of the keys, so that all multiprocessors read, and a second kernel
//|   merges the partial results.
//|
//| **Budget** (d = 128): Q 16 KB, K and V 32 KB each: 80 KB, two blocks per multiprocessor.
//|
//| ![Without packing four blocks read the same keys, each for one row of its tile; packed, one block reads
//| them for four rows](../../docs/figures/pack_gqa.svg)
#pragma once
#include "chapters/08_decoding/merge.cuh"
#include "chapters/08_decoding/softmax.cuh"
#include "common/ptx/mbarrier.h"

namespace flashbook::decoding {

/// Shared memory of a block.
template <typename T, int kHeadDim, int kKeys>
struct PackGqaShared {
  Tile<T, kRowsPerWarpgroup, kHeadDim> q;
  Tile<T, kKeys, kHeadDim> k, v;
  uint64_t landed;  ///< phase i: tile i of keys and values
};

//| ## Threads load the queries
//|
//| A packed tile has few rows, scattered over heads and queries. So threads copy them, 16 bytes at a time, to
//| the places that the swizzle assigns. Rows past the last are zeroed, so that their scores are harmless
//| zeros.
/// Fills a tile with the rows of a pack from `first_row` on. All threads of the block.
template <typename T, int kRows, int kHeadDim>
__device__ __forceinline__ void load_queries(Tile<T, kRows, kHeadDim>& tile, const T* q,
                                             const Problem& problem, const Pack& of, int first_row) {
  constexpr int kPieces = kHeadDim / 8;  // pieces of 16 bytes per row
  for (int i = threadIdx.x; i < kRows * kPieces; i += blockDim.x) {
    const int row = i / kPieces, column = i % kPieces * 8;
    uint4 piece = make_uint4(0, 0, 0, 0);
    if (first_row + row < problem.rows())
      piece = *reinterpret_cast<const uint4*>(q + problem.offset(problem.q_strides, of, first_row + row) +
                                              column);
    *piece_of(tile, row, column) = piece;
  }
}

//| ## Past the last key
//|
//| A cache has free space for future keys, which may contain anything, even NaN. A masked score is -inf and
//| its probability 0, but 0 times NaN is NaN. So the last tile's rows of V past the sequence's length are
//| zeroed before they are multiplied.
/// Zeros in the rows from `first` on. All threads of the block.
template <typename T, int kRows, int kHeadDim>
__device__ __forceinline__ void clear_rows(Tile<T, kRows, kHeadDim>& tile, int first) {
  constexpr int kPieces = kHeadDim / 8;
  for (int i = first * kPieces + threadIdx.x; i < kRows * kPieces; i += blockDim.x)
    *piece_of(tile, i / kPieces, i % kPieces * 8) = make_uint4(0, 0, 0, 0);
}

//| ## From registers to memory
//|
//| A thread has two rows of a finished tile, either of the result or of a part. There are few rows, so they
//| are stored directly from registers.

/// Stores a thread's parts of its two rows, `row` and `row` + 8 of the pack.
template <typename T, int kHeadDim>
__device__ __forceinline__ void store_rows(const float (&output)[kHeadDim / 2], const float (&lse)[2],
                                           const Problem& problem, const Pack& of, int row,
                                           T* o,              // [batch, heads, seqlen_q, kHeadDim], strided
                                           float* all_lse) {  // [batch, heads, seqlen_q]
  const int lane = threadIdx.x % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (row + 8 * r >= problem.rows()) continue;
    auto* to = reinterpret_cast<uint32_t*>(o + problem.offset(problem.o_strides, of, row + 8 * r)) + lane;
#pragma unroll
    for (int i = 0; i < kHeadDim / 8; ++i)
      to[4 * i] = pack<T>(output[4 * i + 2 * r], output[4 * i + 2 * r + 1]);
    if (lane == 0) all_lse[problem.number(of, row + 8 * r)] = lse[r];
  }
}

//| A part is stored in the same way, in float32 and with its log-sum-exp. The parts of a row are as far apart
//| as O has rows, so the merge finds part $i$ without a table.
/// Stores rows of part `part` in float32, each at index `part` * all_rows() + the row's number.
template <int kHeadDim>
__device__ __forceinline__ void store_partial(const float (&output)[kHeadDim / 2], const float (&lse)[2],
                                              const Problem& problem, const Pack& of, int row,
                                              const Partials& partials, int part) {
  const int lane = threadIdx.x % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (row + 8 * r >= problem.rows()) continue;
    const int64_t place = part * problem.all_rows() + problem.number(of, row + 8 * r);
    auto* to = reinterpret_cast<float2*>(partials.o + place * kHeadDim) + lane;
    if (lane == 0) partials.lse[place] = lse[r];
    if (lse[r] == -INFINITY) continue;  // the O of a part without keys is never read
#pragma unroll
    for (int i = 0; i < kHeadDim / 8; ++i)
      to[4 * i] = make_float2(output[4 * i + 2 * r], output[4 * i + 2 * r + 1]);
  }
}

//| ## The kernel
//|
//| This is chapter 5's step 1: request a tile of keys and values, wait, multiply, softmax, multiply. Nothing
//| overlaps within a block; only another block on the same multiprocessor can fill its waits. The grid's x
//| counts tiles of rows over packs and batch, its y parts of the keys.

/// Computes 64 rows of a pack over a part of the keys. Grid: (tiles of rows * packs * batch, parts).
template <typename T, int kHeadDim, int kKeys>
__global__ void __launch_bounds__(kWarpgroup)
    pack_gqa(const T* q,                                 // [batch, heads, seqlen_q, kHeadDim], strided
             const __grid_constant__ CUtensorMap k_map,  // [batch, kv heads, panels, seqlen_k, 64]
             const __grid_constant__ CUtensorMap v_map,  // [batch, kv heads, panels, seqlen_k, 64]
             T* o,                                       // [batch, heads, seqlen_q, kHeadDim], strided
             float* lse,                                 // [batch, heads, seqlen_q]
             Partials partials, Problem problem) {
  using Shared = PackGqaShared<T, kHeadDim, kKeys>;
  static_assert(sizeof(Shared) <= kMaxSharedBytes, "more shared memory than a block may have");
  Shared& shared = *dynamic_shared<Shared>();
  const int row_tiles = (problem.rows() + kRowsPerWarpgroup - 1) / kRowsPerWarpgroup;
  const Pack of = problem.pack_of(blockIdx.x / row_tiles);
  const int first_row = blockIdx.x % row_tiles * kRowsPerWarpgroup;
  const int row = first_row + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;  // and also row + 8
  const int length = problem.length(of.batch);
  const int last[2] = {problem.last_key(length, row), problem.last_key(length, row + 8)};

  //| Parts differ by at most one tile. A part may have no tiles, and a sequence no keys.
  const int last_seen = problem.last_key(length, first_row + kRowsPerWarpgroup - 1);
  const int tiles = (max(last_seen, -1) + kKeys) / kKeys;
  const int parts = gridDim.y, part = blockIdx.y;
  const int begin = int(int64_t(tiles) * part / parts), end = int(int64_t(tiles) * (part + 1) / parts);

  if (threadIdx.x == 0) {
    mbarrier_init(&shared.landed, 1);
    name_mbarrier(&shared.landed, "landed");
    fence_mbarrier_init();  // TMA sees the barrier
  }
  load_queries(shared.q, q, problem, of, first_row);
  fence_proxy_async();  // wgmma sees Q, which threads wrote
  __syncthreads();      // all threads see the barrier and Q

  //| `wgmma` finds its operands in shared memory by descriptors, as in chapter 5. Scores, probabilities and
  //| output are in registers, two rows per thread.
  const uint64_t q_rows = k_major(shared.q), k_rows = k_major(shared.k), values = mn_major(shared.v);
  float output[kHeadDim / 2] = {}, scores[kKeys / 2], correction[2], row_lse[2];
  Fragments<kKeys> p;
  Rows rows = Rows::none();

  uint32_t phase = 0;
  for (int tile = begin; tile < end; ++tile, phase ^= 1) {
    if (threadIdx.x == 0) {
      mbarrier_arrive_expect_tx(&shared.landed, 2 * decltype(shared.k)::kBytes);
      load(shared.k, k_map, &shared.landed, tile * kKeys, {of.kv_head, of.batch});
      load(shared.v, v_map, &shared.landed, tile * kKeys, {of.kv_head, of.batch});
    }
    mbarrier_wait(&shared.landed, phase);  // K and V have landed
    const bool is_last = (tile + 1) * kKeys > length;
    if (is_last) {
      clear_rows(shared.v, length - tile * kKeys);
      fence_proxy_async();  // the zeros are visible to wgmma
      __syncthreads();      // and so are the zeros of all other threads
    }

    //| $S = QK^\top$, in steps of 16 columns, and its softmax. A tile that the last key or a causal mask cuts
    //| is masked first.
    wgmma_fence();
    issue_scores<T, kHeadDim>(scores, q_rows, k_rows);
    wgmma_wait<0>();  // S is in registers
    wgmma_pin(scores);
    if (is_last || problem.causal) mask(scores, last, tile * kKeys);
    online_softmax(scores, rows, correction, problem.scale_log2);
    round_to_fragments<T>(p, scores);
    rescale_rows(output, correction);

    //| $O$ grows by $PV$. The next tile can be requested only after this product, since it goes to the same
    //| place. That is what step 4 changes.
    wgmma_pin(output);
    wgmma_pin(p);
    wgmma_fence();  // P and O were just written by ordinary instructions
    issue_accumulate<T>(output, p, values);
    wgmma_wait<0>();  // O includes this tile
    wgmma_pin(output);
    wgmma_pin(p);
    __syncthreads();  // all warps have read K and V: thread 0 may load new ones
  }

  //| A single part is the result; several are merged by the second kernel.
  finish_rows(output, rows, row_lse, problem.scale_log2);
  if (partials.o == nullptr)
    store_rows<T, kHeadDim>(output, row_lse, problem, of, row, o, lse);
  else
    store_partial<kHeadDim>(output, row_lse, problem, of, row, partials, part);
}

//| ## Step 3's second kernel
//|
//| A warp merges a row. The kernel begins when all blocks of the first one have ended, and its launch costs
//| extra time.

constexpr int kMergeWarps = 4;  ///< rows per block

/// Grid: (packs of all sequences * blocks of a pack).
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(kMergeWarps * 32)
    merge(Partials partials, int parts,
          T* o,        // [batch, heads, seqlen_q, kHeadDim], strided
          float* lse,  // [batch, heads, seqlen_q]
          Problem problem) {
  const int blocks_of_pack = (problem.rows() + kMergeWarps - 1) / kMergeWarps;
  const int row = int(blockIdx.x) % blocks_of_pack * kMergeWarps + int(threadIdx.x) / 32;
  if (row >= problem.rows()) return;
  const Pack of = problem.pack_of(int(blockIdx.x) / blocks_of_pack);
  const int64_t number = problem.number(of, row);
  store_row<T>(
      merge_row<kHeadDim>(partials, parts, [&](int part) { return part * problem.all_rows() + number; }),
      problem, of, row, o, lse);
}

}  // namespace flashbook::decoding

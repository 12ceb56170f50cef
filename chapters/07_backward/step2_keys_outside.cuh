//| # Step 1, second kernel, and step 2
//|
//| A block owns a tile of keys and loops over the queries. In step 1 it computes dK and dV. In step 2 it also
//| contributes to dQ, so that S and dP are computed only once: FlashAttention-2's loop.
//|
//| **The idea: keys are rows.** The kernel computes $S^\top = K Q^\top$ and $dP^\top = V\,dO^\top$. Each warp
//| owns keys, and its results have a row for each of them. Then $P^\top$ and $dS^\top$ are left operands of
//| $dV \mathrel{+}= P^\top dO$ and $dK \mathrel{+}= dS^\top Q$ right in their registers. So in four of the
//| five products a warp needs nothing from another (at $d = 64$).
//|
//| ![The five products of a tile and where their operands lie](../../docs/figures/backward_products.svg)
//|
//| **The fifth product** is $dQ = dS\,K$, a sum over keys, which are spread over all warps. So $dS^\top$ goes
//| through shared memory, once, and the warps divide the queries and dims of dQ among themselves. The result
//| is only this block's part of dQ. Other blocks, which own other keys, have other parts. `atomicAdd` sums
//| the parts in device memory, in float32.
//|
//| **Budget**, $d = 128$: K and V of 128 keys 64 KB, two stages of Q and dO of 64 queries 64 KB, $dS^\top$
//| and $P^\top$ 16 KB each: 161 KB, one block of eight warps. Registers: dK and dV 128, the scores and dP 64,
//| and the rest for operands: 255, the maximum.
#pragma once
#include "chapters/07_backward/prepare.cuh"
#include "chapters/07_backward/warp_tile.cuh"

namespace flashbook::backward {

//| ## The sizes
//|
//| dK and dV are two sums of `head_dim` floats per key, and they stay in registers from the first query to
//| the last. That determines everything else. At $d = 64$ a warp owns 32 keys: 128 registers of sums. At
//| $d = 128$ the same would take 256, more than a thread has. There are two ways out: 16 keys per warp, or 32
//| keys shared by two warps, each with half of the dims. The second reads every operand for two row blocks,
//| and was faster in a sweep on an H200. At $d = 256$ four warps share 32 keys.
//|
//| Warps that share keys also share the work on the scores: each computes those of some of the queries. But
//| each needs $P^\top$ and $dS^\top$ of *all* queries for its dims. So both go through shared memory.
//| `kSplit` warps share the same keys.
/// The sizes of a kernel for dK and dV. `split` warps share row_blocks * 16 keys: each computes the scores of
/// a part of the queries, and sums a part of the dims.
struct KeySizes {
  int head_dim;
  int warps = 8;          ///< per block
  int split = 1;          ///< warps that share their keys
  int row_blocks = 2;     ///< blocks of 16 keys per warp
  int queries = 64;       ///< per tile
  int blocks_per_sm = 1;  ///< resident blocks, which must also fit in registers
};

/// The sizes, and what follows from them.
template <KeySizes kSizes>
struct KeyKernelTraits {
  static constexpr int kHeadDim = kSizes.head_dim, kWarps = kSizes.warps, kSplit = kSizes.split;
  static constexpr int kRowBlocks = kSizes.row_blocks, kQueries = kSizes.queries;
  static constexpr int kBlocksPerSm = kSizes.blocks_per_sm;
  static constexpr int kThreads = kWarps * 32, kWarpKeys = kRowBlocks * 16;
  static constexpr int kKeys = kWarps / kSplit * kWarpKeys;
  static constexpr int kColumns = kQueries / kSplit;  // queries whose scores a warp computes
  static constexpr int kDims = kHeadDim / kSplit;     // dims of dK and dV that a warp sums
  static constexpr int kRowBytes = kHeadDim * 2, kKeyTileBytes = kKeys * kRowBytes;
  static constexpr int kQueryTileBytes = kQueries * kRowBytes;
  static constexpr int kStageBytes = 2 * kQueryTileBytes + 2 * kQueries * 4;  // Q, dO, log-sum-exp, D
  // dS^T goes through shared memory for dQ; so does P^T if warps share keys.
  static constexpr int kPairBytes = kKeys * kQueries * 2;
  static constexpr int kSharedBytes = 2 * kKeyTileBytes + 2 * kStageBytes + kSplit * kPairBytes;
  //| The product for dQ is divided differently: 32 queries per warp, and the dims divided among the remaining
  //| warps. A thread then adds `kDqFloats` floats to memory.
  // dQ of a tile: warps side by side along the queries and along the dims.
  static constexpr int kDqRowBlocks = 2, kDqWarpRows = kDqRowBlocks * 16;
  static constexpr int kDqDims = kHeadDim / (kWarps / (kQueries / kDqWarpRows));  // dims per warp
  static constexpr int kDqFloats = kDqRowBlocks * kDqDims / 8 * 4;                // floats per thread
  static_assert(kDqFloats * kThreads == kQueries * kHeadDim, "the warps' parts are dQ's tile, each once");
};

//| **A layout for dQ's sums.** A lane's four results of a block are in two rows. In row-major order a warp's
//| 32 additions would touch eight rows, 32 bytes each. But only `convert_dq` reads these sums, so we may
//| choose their order in memory: float number $i$ of all threads is contiguous, and one instruction of a warp
//| adds to 128 contiguous bytes.
/// Returns the place of this thread's float `i` of dQ in a tile of the workspace, next to its neighbours'.
template <typename Traits>
__device__ __forceinline__ int place_of_dq(int i) {
  return i * Traits::kThreads + int(threadIdx.x);
}

//| ## The left operand
//|
//| The left operand comes from registers, or, if warps share keys, from the tile that they have written.
/// P^T or dS^T of the warp's keys and 16 queries as a left operand: from its registers, or from what the
/// warps that share its keys have written.
template <typename T, typename Traits>
__device__ __forceinline__ void left_operand(uint32_t (&a)[Traits::kRowBlocks][4],
                                             const Blocks<Traits::kRowBlocks, Traits::kColumns / 8>& blocks,
                                             const unsigned char* rows,  // swizzled, the warp's first key
                                             int step) {
  if constexpr (Traits::kSplit == 1) {
    round_blocks<T>(a, blocks, step);
  } else {
    constexpr int kRowBytes = Traits::kQueries * 2;
    const int lane = threadIdx.x % 32, place = walk(swizzled<kRowBytes>(lane % 16, lane / 16), step);
#pragma unroll
    for (int r = 0; r < Traits::kRowBlocks; ++r) ldmatrix_x4(a[r], rows + place + r * 16 * kRowBytes);
  }
}

//| ## The kernel
//|
//| Both steps share one template. With `kAddsDq` the block contributes to dQ. Without it, the fifth product,
//| its barrier and its additions are not compiled.
/// Computes dK and dV of a key tile, and with kAddsDq its part of dQ. Grid: (key tiles * key heads); dynamic
/// shared memory: Traits::kSharedBytes.
template <typename T, typename Traits, bool kAddsDq>
__global__ void __launch_bounds__(Traits::kThreads, Traits::kBlocksPerSm)
    keys_outside(const T* q,    // [batch, heads, seqlen_q, kHeadDim]
                 const T* k,    // [batch, kv_heads, seqlen_k, kHeadDim]
                 const T* v,    // [batch, kv_heads, seqlen_k, kHeadDim]
                 const T* d_o,  // [batch, heads, seqlen_q, kHeadDim]
                 Workspace workspace,
                 T* dk,  // [batch, kv_heads, seqlen_k, kHeadDim]
                 T* dv,  // [batch, kv_heads, seqlen_k, kHeadDim]
                 Problem problem) {
  //| ## Where the block is
  //|
  //| A block has one tile of keys of one key head, and processes the queries of *every* query head of the
  //| group, one head after another. So it sums over the group in registers, and nothing has to be summed
  //| afterwards. The price is fewer blocks.
  //|
  //| Under the causal mask the first tile of queries is the one with the first query that sees the first key.
  //| All queries see tile 0 of the keys, so the longest blocks have the smallest numbers and start first.
  constexpr int kHeadDim = Traits::kHeadDim, kRowBlocks = Traits::kRowBlocks, kQueries = Traits::kQueries;
  constexpr int kColumnBlocks = Traits::kColumns / 8, kPairRowBytes = kQueries * 2;
  constexpr bool kShares = Traits::kSplit > 1;
  const int key_tiles = (problem.seqlen_k + Traits::kKeys - 1) / Traits::kKeys;
  const int kv_head = blockIdx.x / key_tiles, first_key = int(blockIdx.x) % key_tiles * Traits::kKeys;
  const int valid_keys = problem.seqlen_k - first_key;
  const int query_tiles = (problem.seqlen_q + kQueries - 1) / kQueries;
  const int first_tile = min(problem.first_query(first_key) / kQueries, query_tiles);
  const int tiles_of_head = query_tiles - first_tile, tiles = tiles_of_head * problem.group;

  //| K and V stay in shared memory; dK and dV take their places at the end. A stage holds the data of a tile
  //| of queries: Q, dO, and each query's log-sum-exp and $D$.
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_key = warp / Traits::kSplit * Traits::kWarpKeys;  // the warp's keys, within the tile
  const int warp_column = warp % Traits::kSplit * Traits::kColumns,
            warp_dim = warp % Traits::kSplit * Traits::kDims;
  unsigned char* k_tile = dynamic_shared<unsigned char>();    // [kKeys, kHeadDim], then dK
  unsigned char* v_tile = k_tile + Traits::kKeyTileBytes;     // [kKeys, kHeadDim], then dV
  unsigned char* stages = v_tile + Traits::kKeyTileBytes;     // 2 x {Q, dO, log-sum-exp, D}
  unsigned char* ds_tile = stages + 2 * Traits::kStageBytes;  // dS^T [kKeys, kQueries]
  unsigned char* p_tile = ds_tile + Traits::kPairBytes;       // P^T [kKeys, kQueries], if kShares

  //| Iteration `i` counts over heads of the group and tiles of queries together. The log-sum-exps are copied
  //| by `cp.async` with their rows, 16 bytes per thread. No check for the end is needed, because the
  //| workspace has whole tiles.
  const auto head_of = [&](int i) { return kv_head * problem.group + i / tiles_of_head; };
  const auto query_of = [&](int i) { return (first_tile + i % tiles_of_head) * kQueries; };
  const auto load = [&](int i) {
    const int head = head_of(i), query = query_of(i), valid = problem.seqlen_q - query;
    unsigned char* const stage = stages + i % 2 * Traits::kStageBytes;
    copy_tile<kQueries, kHeadDim, Traits::kThreads>(
        stage, q + problem.query_offset(problem.at.q, head, query), problem.at.q.row, valid);
    copy_tile<kQueries, kHeadDim, Traits::kThreads>(stage + Traits::kQueryTileBytes,
                                                    d_o + problem.query_offset(problem.at.d_o, head, query),
                                                    problem.at.d_o.row, valid);
    constexpr int kPieces = kQueries / 4;  // pieces of 16 bytes in each of the two
    static_assert(2 * kPieces <= Traits::kThreads, "a thread copies a piece of the log-sum-exp or of D");
    if (threadIdx.x < 2 * kPieces) {
      const float* const from = threadIdx.x < kPieces ? workspace.lse : workspace.d;
      cp_async_cg(stage + 2 * Traits::kQueryTileBytes + threadIdx.x * 16,
                  from + int64_t(head) * problem.padded_q + query + threadIdx.x % kPieces * 4);
    }
  };
  copy_tile<Traits::kKeys, kHeadDim, Traits::kThreads>(
      k_tile, k + problem.key_offset(problem.at.k, kv_head, first_key), problem.at.k.row, valid_keys);
  copy_tile<Traits::kKeys, kHeadDim, Traits::kThreads>(
      v_tile, v + problem.key_offset(problem.at.v, kv_head, first_key), problem.at.v.row, valid_keys);
  if (tiles > 0) load(0);
  cp_async_commit();

  //| ## One tile of queries
  //|
  //| The sums begin at zero and are always written. So a block whose keys no query sees still writes
  //| zeros.
  Blocks<kRowBlocks, Traits::kDims / 8> dk_sums = {}, dv_sums = {};
  const auto use = [&]<bool kMasked>(int i) {
    const int first_query = query_of(i);
    const unsigned char* const q_tile = stages + i % 2 * Traits::kStageBytes;
    const unsigned char* const do_tile = q_tile + Traits::kQueryTileBytes;
    const float* const lse = reinterpret_cast<const float*>(q_tile + 2 * Traits::kQueryTileBytes);
    const float* const d = lse + kQueries;

    //| Two products by rows: K with Q, V with dO. In both products the warp's keys are the rows.
    //|
    //| Now a *column* belongs to a query. A lane has two columns in each block of 8, and reads their
    //| log-sum-exp and $D$ from the stage; lanes with the same columns read the same address in one access.
    //| The mask compares in the other direction, too: row `r * 16 + half * 8` of the lane is a key, and
    //| `last` is the last key that the query sees, relative to the lane's first row.
    Blocks<kRowBlocks, kColumnBlocks> p, ds;  // S^T, then P^T; dP^T, then dS^T
    multiply_rows<T, kHeadDim>(p, k_tile + warp_key * Traits::kRowBytes,
                               q_tile + warp_column * Traits::kRowBytes);
    multiply_rows<T, kHeadDim>(ds, v_tile + warp_key * Traits::kRowBytes,
                               do_tile + warp_column * Traits::kRowBytes);
#pragma unroll
    for (int n = 0; n < kColumnBlocks; ++n)
#pragma unroll
      for (int column = 0; column < 2; ++column) {
        const int query = warp_column + n * 8 + lane % 4 * 2 + column;
        const float query_lse = lse[query], query_d = d[query];
        const int last = problem.last_key(first_query + query) - first_key - warp_key - lane / 4;
#pragma unroll
        for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float& x = p[r][n][2 * half + column];
            if (kMasked && r * 16 + half * 8 > last) x = -INFINITY;
            x = exp2_approx(problem.scale_log2 * x - query_lse);
            float& y = ds[r][n][2 * half + column];
            y = x * (y - query_d);
          }
      }
    //| $dS^\top$ is written for the other warps, rounded to 16 bits, as it will be multiplied. In step 1
    //| without sharing nothing is written at all, and the loop has one barrier per tile.
    if constexpr (kAddsDq || kShares) write_blocks<T, kPairRowBytes>(ds_tile, ds, warp_key, warp_column);
    if constexpr (kShares) {
      write_blocks<T, kPairRowBytes>(p_tile, p, warp_key, warp_column);
      __syncthreads();  // the warps that share keys have written P^T and dS^T
    }
//| Two products by columns follow. dO and Q are read again, now transposed by `ldmatrix`.
#pragma unroll
    for (int step = 0; step < kQueries / 16; ++step) {
      uint32_t a[kRowBlocks][4];
      left_operand<T, Traits>(a, p, p_tile + warp_key * kPairRowBytes, step);
      multiply_columns<T, kHeadDim>(dv_sums, a, do_tile + step * 16 * Traits::kRowBytes, warp_dim);
    }
#pragma unroll
    for (int step = 0; step < kQueries / 16; ++step) {
      uint32_t a[kRowBlocks][4];
      left_operand<T, Traits>(a, ds, ds_tile + warp_key * kPairRowBytes, step);
      multiply_columns<T, kHeadDim>(dk_sums, a, q_tile + step * 16 * Traits::kRowBytes, warp_dim);
    }
  };

  //| ## The fifth product
  //|
  //| $dS$ is needed with queries as rows, but is in shared memory with keys as rows. `ldmatrix` with `.trans`
  //| transposes it, 8 by 8 elements at a time. K has been in shared memory since the beginning, and is read
  //| by columns.
  /// Adds dS K of the tile to dQ, which other blocks add to as well.
  const auto add_dq = [&](int i) {
    constexpr int kWarpsAlongQueries = kQueries / Traits::kDqWarpRows;
    const int warp_query = warp % kWarpsAlongQueries * Traits::kDqWarpRows;
    const int dim = warp / kWarpsAlongQueries * Traits::kDqDims;
    Blocks<Traits::kDqRowBlocks, Traits::kDqDims / 8> sums = {};
    const int place = swizzled<kPairRowBytes>(lane % 8 + lane / 16 * 8, lane / 8 % 2 + warp_query / 8);
#pragma unroll
    for (int step = 0; step < Traits::kKeys / 16; ++step) {
      uint32_t a[Traits::kDqRowBlocks][4];
#pragma unroll
      for (int r = 0; r < Traits::kDqRowBlocks; ++r)
        ldmatrix_x4_trans(a[r], ds_tile + step * 16 * kPairRowBytes + (place ^ r * 32));
      multiply_columns<T, kHeadDim>(sums, a, k_tile + step * 16 * Traits::kRowBytes, dim);
    }
    //| **The additions.** The result of `atomicAdd` is not used, so the compiler emits a reduction, which the
    //| L2 cache carries out. The blocks of a head add to the same tile of dQ in whatever order they arrive.
    //| Float addition is not associative, so the last bits of dQ differ from launch to launch:
    //|
    //| ![Four parts of one element of dQ, added in two orders, end in different last
    //| digits](../../docs/figures/backward_orders.svg)
    float* const dq = workspace.dq + (int64_t(head_of(i)) * problem.padded_q + query_of(i)) * kHeadDim;
#pragma unroll
    for (int r = 0; r < Traits::kDqRowBlocks; ++r)
#pragma unroll
      for (int n = 0; n < Traits::kDqDims / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          atomicAdd(dq + place_of_dq<Traits>((r * (Traits::kDqDims / 8) + n) * 4 + e), sums[r][n][e]);
  };

//| ## The loop
//|
//| Step 2 has two barriers per tile. At the first, the tile has arrived for all threads, and all warps are
//| done with the stage and with $dS^\top$ of the previous tile. At the second, $dS^\top$ is complete. A tile
//| needs the mask if its first query does not see the block's last key, or if keys end inside the block.
#pragma unroll 1
  for (int i = 0; i < tiles; ++i) {
    cp_async_wait<0>();
    __syncthreads();  // the tile has arrived, and no warp still reads the stage or dS^T that are overwritten
    if (i + 1 < tiles) load(i + 1);
    cp_async_commit();
    if (first_key + Traits::kKeys - 1 > problem.last_key(query_of(i)))
      use.template operator()<true>(i);
    else
      use.template operator()<false>(i);
    if constexpr (kAddsDq) {
      if (!kShares) __syncthreads();  // all warps have written dS^T
      add_dq(i);
    }
  }
  //| ## The end
  //|
  //| dK is multiplied by the scale once. dV has no scale. Rows past the last key are not stored.
  cp_async_wait_all();
  __syncthreads();  // no warp reads K and V any more; if no query sees them, they have arrived
  store_blocks<T, kHeadDim>(dk_sums, problem.scale, k_tile, warp_key, warp_dim,
                            dk + problem.key_offset(problem.at.dk, kv_head, first_key), problem.at.dk.row,
                            valid_keys);
  store_blocks<T, kHeadDim>(dv_sums, 1.0f, v_tile, warp_key, warp_dim,
                            dv + problem.key_offset(problem.at.dv, kv_head, first_key), problem.at.dv.row,
                            valid_keys);
}

//| ## The conversion
//|
//| A last kernel rounds the sums of dQ to 16 bits. It has as many threads as the kernel above, and each reads
//| the floats at the places where it would have added them. So they are read back as fragments, in the same
//| lanes, and are stored like any other result. Reads are coalesced just as the additions were.
/// Rounds the sums of dQ. A thread reads what it would have added in keys_outside. Grid: (tiles of
/// Traits::kQueries queries of the workspace); dynamic shared memory: Traits::kQueryTileBytes.
template <typename T, typename Traits>
__global__ void __launch_bounds__(Traits::kThreads)
    convert_dq(const float* sums,  // [batch * heads, padded_q, kHeadDim], in place_of_dq's order
               T* dq,              // [batch, heads, seqlen_q, kHeadDim]
               Problem problem) {
  constexpr int kWarpsAlongQueries = Traits::kQueries / Traits::kDqWarpRows;
  const int tiles = problem.padded_q / Traits::kQueries;
  const int head = blockIdx.x / tiles, first_query = int(blockIdx.x) % tiles * Traits::kQueries;
  const int warp = threadIdx.x / 32;
  sums += int64_t(blockIdx.x) * Traits::kQueries * Traits::kHeadDim;
  Blocks<Traits::kDqRowBlocks, Traits::kDqDims / 8> blocks;
#pragma unroll
  for (int r = 0; r < Traits::kDqRowBlocks; ++r)
#pragma unroll
    for (int n = 0; n < Traits::kDqDims / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        blocks[r][n][e] = sums[place_of_dq<Traits>((r * (Traits::kDqDims / 8) + n) * 4 + e)];
  store_blocks<T, Traits::kHeadDim>(blocks, problem.scale, dynamic_shared<unsigned char>(),
                                    warp % kWarpsAlongQueries * Traits::kDqWarpRows,
                                    warp / kWarpsAlongQueries * Traits::kDqDims,
                                    dq + problem.query_offset(problem.at.dq, head, first_query),
                                    problem.at.dq.row, problem.seqlen_q - first_query);
}

}  // namespace flashbook::backward

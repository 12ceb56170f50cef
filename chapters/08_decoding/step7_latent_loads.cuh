//| # Latent attention: loads
//|
//| This is how [step 7](step7_latent.cuh) loads its tiles of keys, by TMA, and its queries, by threads.
//|
//| ![A tile of K and one of V: where the 16-byte pieces of a row lie, and which product reads them. A product
//| takes two pieces of every row of K, and all pieces of 16 rows of V](../../docs/figures/wgmma_tiles.svg)
#pragma once
#include "chapters/08_decoding/step7_latent_tiles.cuh"
#include "common/ptx/barrier.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/fence.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/stmatrix.h"
#include "common/ptx/tma.h"

namespace flashbook::decoding {

/// The location of the pages. Without a table a sequence is one page.
struct LatentCache {
  const int* table;           ///< [batch, pages_of_sequence], or null
  device::Divisor page_rows;  ///< a multiple of LatentKernelTraits::kKeys, if there is a table
  int pages_of_sequence;
};

//| ## Tiles of keys
//|
//| A *panel* is 64 columns of a tile, and a key has nine
//| ([`step7_latent_tiles.cuh`](step7_latent_tiles.cuh)). A tile is loaded in three copies of three panels,
//| each with its own barrier, so that the first products can begin after the first third. Three warps request
//| one third each. There is no dedicated producer: the warpgroup of the right half, which releases a tile
//| last, refills its place. Only a segment's first three tiles are requested by the warpgroup that computes
//| the scores, since it begins a segment first.
//|
//| A tile never crosses a page, since a page has 64 keys or a multiple. Without a table, the batch entry
//| plays the role of the page.

/// Waits until `stage`, whose next phase is `phase`, is empty, and requests a tile of a segment, if there is
/// one. A warpgroup.
template <typename T>
__device__ __forceinline__ void fill(LatentShared<T>& shared, const CUtensorMap& map,
                                     const LatentCache& cache, const Problem& problem, int stage,
                                     uint32_t phase, const Segment& segment, int tile) {
  const unsigned thread = thread_number();
  const int box = thread / 32 % 4;
  if (thread % 32 == 0 && box < LatentKernelTraits::kBoxes) {
    const int panel = box * LatentKernelTraits::kBoxPanels;
    uint64_t* full = &shared.full[stage][box];
    mbarrier_wait(&shared.empty[stage][box], phase ^ 1);  // all warps have read the previous tile
    if (tile < segment.end) {
      const Pack of = problem.pack_of(segment.pack);
      const int key = tile * LatentKernelTraits::kKeys;
      int row = key, page = of.batch;
      if (cache.table != nullptr) {
        row = key % cache.page_rows;
        page = cache.table[of.batch * cache.pages_of_sequence + key / cache.page_rows];
      }
      //| The five indices of a box: column 0 of the panel, row, panel, key head, page.
      mbarrier_arrive_expect_tx(full, LatentKernelTraits::kBoxPanels * kPanelBytes);
      tma_load(shared.keys[stage].element[panel], map, full, {0, row, panel, of.kv_head, page});
    }
  }
  __syncwarp();
}

//| ## Queries
//|
//| A tile's rows are heads of one query, then heads of the next, so in general they do not form a box of a
//| tensor. Threads load them by `cp.async`, 16 bytes at a time, to the places that the swizzle assigns in the
//| last stage, which is free while the first two are being filled. The warpgroups that have O do it while the
//| third one requests keys. A lane computes the address of one of the warp's eight rows.
//|
//| **All loads are in flight before any thread waits**: one trip to memory. (A first version loaded and
//| stored one piece at a time, and each load waited for the store before it: a trip per row, 11 µs at the
//| start of each segment.) And **the loop is short**, because a block's first instructions come from memory,
//| too. Fully unrolled to some 280 instructions, the last load was issued 4100 clocks after the segment was
//| known ([the table](appendix.md#latents-the-beginning-and-the-end)).

/// Loads a segment's rows to `tile`, and their last panel to its own place. Rows past the pack's last are
/// zeros. The warpgroups that have O; the third one waits at kQueries.
template <typename T>
__device__ __forceinline__ void load_latent_queries(LatentShared<T>& shared, LatentTile<T>& tile,
                                                    const T* q,  // [batch, heads, seqlen_q, 576], strided
                                                    const Problem& problem, const Segment& segment) {
  constexpr int kRows = LatentKernelTraits::kRows, kWarpRows = kRows / LatentKernelTraits::kWarps;
  const int lane = thread_number() % 32, first = thread_number() / 32 * kWarpRows;  // first row of the warp
  const int own = segment.row_tile * kRows + first + lane % kWarpRows;
  const bool exists = own < problem.rows();
  const int64_t before = exists ? problem.offset(problem.q_strides, problem.pack_of(segment.pack), own) : 0;
  const unsigned existing = __ballot_sync(kWholeWarp, exists);
  //| A row has 72 pieces of 16 bytes: two per lane, and a third for eight of them.
#pragma unroll 1
  for (int i = 0; i < kWarpRows; ++i) {
    const T* from = q + __shfl_sync(kWholeWarp, before, i) + lane * 8;
    const int row = first + i, bytes = existing >> i & 1 ? 16 : 0;  // 0 bytes: zeros
    cp_async_cg(piece_of(tile, row, lane * 8), from, bytes);
    cp_async_cg(piece_of(tile, row, 256 + lane * 8), from + 256, bytes);
    if (lane < 8) cp_async_cg(piece_of(shared.q_position, row, lane * 8), from + 512, bytes);
  }
  cp_async_wait_all();
  fence_proxy_async();  // this thread's rows become visible to wgmma and TMA,
  named_barrier_arrive<kQueries, LatentKernelTraits::kThreads>();  // and to the warpgroup that reads them
}

//| The warpgroup that computes scores loads them from there into registers, as `wgmma` expects a left
//| operand: 16 columns are four registers per thread. Of 36 times 16 columns 31 fit in registers. The next 16
//| columns go to shared memory, next to the position.

/// Moves a warp's 16 rows of `tile` to registers, and 16 columns of them to shared memory. The warpgroup that
/// computes scores.
template <typename T>
__device__ __forceinline__ void take_queries(uint32_t (&in_registers)[LatentKernelTraits::kSteps][4],
                                             LatentShared<T>& shared, LatentTile<T>& tile) {
  constexpr int kSteps = LatentKernelTraits::kSteps;
  const unsigned thread = thread_number() % kWarpgroup;
  const int row = thread / 32 * 16 + thread % 16, half = thread % 32 / 16;
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
    ldmatrix_x4(in_registers[step], piece_of(tile, row, step * kMmaK + half * 8));
  uint32_t last[4];
  ldmatrix_x4(last, piece_of(tile, row, kSteps * kMmaK + half * 8));
  stmatrix_x4(reinterpret_cast<unsigned char*>(shared.q_last) + swizzled(Swizzle::b32, row * 32 + half * 16),
              last);
  fence_proxy_async();                        // this thread's writes become visible to wgmma,
  named_barrier_sync<kScores, kWarpgroup>();  // and all have read the tile, so TMA may overwrite it
}

}  // namespace flashbook::decoding

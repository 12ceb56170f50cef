//| # Step 1: TMA and WGMMA
//|
//| Chapter 4 runs on Hopper, too, but `mma.sync` reaches 63 % of what Hopper's tensor cores can do: its
//| operands pass through registers, and a warp stalls while it multiplies. This step introduces the two units
//| that change this, and nothing else:
//|
//| * **TMA** copies whole tiles. One thread requests a tile, and no thread computes an element's address.
//| * **WGMMA** multiplies tiles where they are. Four warps work together on 64 rows, and S and O stay in
//|   registers.
//|
//| One warpgroup owns 64 queries. It requests a tile of keys and values, waits, multiplies, waits, does the
//| softmax, multiplies, waits. Of memory, tensor cores and exponentials, a block keeps one busy at a time.
//| Two blocks fit on a multiprocessor, and one may work while the other waits; whether they do is not known.
//|
//| **Budget** (d = 128): Q 16 KB, K and V 32 KB each, 80 KB of shared memory. Registers: 64 of O, 64 of S, 32
//| of P.
//|
//| ![Step 1 does one after the other; in steps 2 to 4 copies, products and softmax
//| overlap](../../docs/figures/overlaps.svg)
#pragma once
#include "common/hopper/epilogue.h"
#include "common/hopper/mask.h"
#include "common/hopper/softmax.h"
#include "common/hopper/tiles.h"
#include "common/ptx/mbarrier.h"

namespace flashbook::fa3 {

using namespace hopper;  // tiles and their products, masks, softmax, epilogue: parts that later chapters
                         // share

/// Shared memory of a block of step 1.
template <typename T, int kHeadDim, int kKeys>
struct SingleShared {
  Tile<T, kRowsPerWarpgroup, kHeadDim> q;
  Tile<T, kKeys, kHeadDim> k, v;
  uint64_t landed;  ///< phase i: tile i of keys and values, and with the first of them Q
};

//| ## One mbarrier
//|
//| `landed` expects one arrival per phase: that of thread 0, which also announces how many bytes will come.
//| TMA subtracts the bytes as they land. After the arrival and the last byte, the phase is complete, and the
//| threads that wait for its parity continue. The first phase has parity 0, the next 1, then 0 again.

/// Computes attention for 64 queries of one head. Grid: (tiles of queries * heads).
template <typename T, int kHeadDim, int kKeys>
__global__ void __launch_bounds__(kWarpgroup)
    single_warpgroup(const __grid_constant__ TileMap q_map,  // [batch, heads, panels, seqlen_q, 64]
                     const __grid_constant__ TileMap k_map,  // [batch, kv heads, panels, seqlen_k, 64]
                     const __grid_constant__ TileMap v_map,  // [batch, kv heads, panels, seqlen_k, 64]
                     T* o,                                   // [batch, heads, seqlen_q, kHeadDim], strided
                     float* lse,                             // [batch, heads, seqlen_q]
                     Problem problem) {
  //| ## The kernel
  //|
  //| A block is one warpgroup and has 64 queries of one head. `key_tiles` is the number of tiles of keys that
  //| the last of them sees.
  using Shared = SingleShared<T, kHeadDim, kKeys>;
  static_assert(sizeof(Shared) <= kMaxSharedBytes, "more shared memory than a block of sm_90 may have");
  Shared& shared = *dynamic_shared<Shared>();
  const int tiles_of_head = problem.query_tiles(kRowsPerWarpgroup);
  const Head head = problem.head_of(blockIdx.x / tiles_of_head), kv_head = problem.kv_head(head);
  const int first_query = blockIdx.x % tiles_of_head * kRowsPerWarpgroup;
  const int key_tiles = problem.key_tiles(first_query + kRowsPerWarpgroup - 1, kKeys);
  // wgmma assigns row 16 * warp + lane / 4, and the one 8 below, to this thread.
  const int query = first_query + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;

  if (threadIdx.x == 0) {
    //| Thread 0 initialises the barrier with one arrival per phase. TMA is not a thread, so `__syncthreads`
    //| does not reach it; the fence does.
    mbarrier_init(&shared.landed, 1);
    name_mbarrier(&shared.landed, "landed");
    fence_mbarrier_init();  // TMA sees the barrier,
  }
  __syncthreads();  // and all threads see it

  //| The three descriptors stay the same for the whole kernel, because each tile has one place. `output` and
  //| `scores` are a thread's WGMMA results, a 128th of 64 rows each.
  const uint64_t q = k_major(shared.q), k = k_major(shared.k), v = mn_major(shared.v);
  float output[kHeadDim / 2], scores[kKeys / 2], correction[2];
  Fragments<kKeys> p;
#pragma unroll
  for (int i = 0; i < kHeadDim / 2; ++i) output[i] = 0.0f;
  auto rows = SoftmaxRows<false>::none();

  uint32_t phase = 0;
  for (int tile = key_tiles - 1; tile >= 0; --tile, phase ^= 1) {
    if (threadIdx.x == 0) {
      //| Thread 0 announces the number of bytes and requests them from TMA; then all threads wait for the
      //| phase. Q is loaded with the first tile, in the same phase. Tiles go from the last to the first, so
      //| the masked ones come first.
      //|
      //| One instruction announces the bytes and arrives, so the phase cannot end before its bytes are
      //| announced.
      const bool first = tile == key_tiles - 1;
      mbarrier_arrive_expect_tx(&shared.landed, decltype(shared.k)::kBytes + decltype(shared.v)::kBytes +
                                                    (first ? decltype(shared.q)::kBytes : 0));
      if (first) load(shared.q, q_map, &shared.landed, first_query, head);
      load(shared.k, k_map, &shared.landed, tile * kKeys, kv_head);
      load(shared.v, v_map, &shared.landed, tile * kKeys, kv_head);
    }
    mbarrier_wait(&shared.landed, phase);  // K, V and Q have landed

    wgmma_fence();
    //| Now the products run and all threads wait: this is the gap that the next steps fill. `wgmma_wait<0>`
    //| returns when no group is left. `wgmma_pin` names the registers once more, so that the compiler does
    //| not move their use above the wait.
    issue_scores<T, kHeadDim>(scores, q, k);
    wgmma_wait<0>();  // S is in registers
    wgmma_pin(scores);
    if (needs_mask(problem, first_query, tile * kKeys, kKeys)) mask(scores, problem, query, tile * kKeys);
    softmax(scores, rows, correction, problem.scale_log2);
    round_to_fragments<T>(p, scores);
    rescale_rows(output, correction);

    wgmma_pin(output);
    wgmma_pin(p);
    wgmma_fence();  // P and O were just written by ordinary instructions
    //| The second product of the tile reads P from registers and V from shared memory, and adds to O. Then
    //| come another wait, and a barrier of the block: TMA may overwrite K and V only when all four warps have
    //| read them.
    issue_accumulate<T>(output, p, v);
    wgmma_wait<0>();  // O includes this tile
    wgmma_pin(output);
    wgmma_pin(p);
    __syncthreads();  // all warps have read K and V: thread 0 may load new ones
  }

  finish_rows(output, rows, problem, lse, problem.number(head), query);
  store_from_registers<T>(
      output, query, problem.seqlen_q, [&](int row) { return o + problem.o_offset(head, row); }, 1.0f,
      problem.head_dim);
}

}  // namespace flashbook::fa3

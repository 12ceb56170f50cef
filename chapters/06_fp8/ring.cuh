//| # Rings
//|
//| Keys come through a ring as in chapter 5. Values come through two: `raw`, where TMA lays them, and `turned`, where the
//| transposers write them. So there are four hands, and each pair that meets has a ring between it:
//|
//| | ring | who fills it | `full`: arrivals of a phase | who empties it | `empty`: arrivals of a phase |
//| | --- | --- | --- | --- | --- |
//| | `keys` | TMA, for the loader | 1, and the bytes | the consumers | 4 a warpgroup: lane 0 of each warp, when its products are done |
//| | `raw` | TMA, for the loader | 1, and the bytes | the transposers | 2: lane 0 of each warp, when it has read its part |
//| | `turned` | the transposers | 2: lane 0 of each warp, when all lanes have written | the consumers | 4 a warpgroup |
//|
//| Who fills waits for parity 1 first: the slots begin empty, and the phase before the first counts as over. Who empties
//| waits for parity 0, the end of the first filling.
#pragma once
#include "chapters/06_fp8/tiles.cuh"
#include "common/ptx/mbarrier.h"

namespace flashbook::fp8 {

template <typename Tile_, int kSlots_>
struct Ring {
  static constexpr int kSlots = kSlots_;
  Tile_ tile[kSlots];
  uint64_t full[kSlots];   ///< a tile is there
  uint64_t empty[kSlots];  ///< all have read it
};

/// One thread makes the barriers, before the block's first __syncthreads. `fillers` and `readers` are warps
/// that arrive, or 1 for a thread with TMA. The names are for the simulator's reports.
template <typename Ring>
__device__ void initialise(Ring& ring, int fillers, int readers, const char* full, const char* empty) {
  for (int slot = 0; slot < Ring::kSlots; ++slot) {
    mbarrier_init(&ring.full[slot], fillers);
    name_mbarrier(&ring.full[slot], full, slot);
    mbarrier_init(&ring.empty[slot], readers);
    name_mbarrier(&ring.empty[slot], empty, slot);
  }
}

/// A place in a ring: a slot, and the parity of the round.
template <int kSlots>
struct Place {
  int slot = 0;
  uint32_t round = 0;  ///< 0 the first time round the ring, then 1, then 0

  __device__ __forceinline__ void advance() {
    if (++slot == kSlots) slot = 0, round ^= 1;
  }
};

/// Waits for the slot to be empty and has `head`'s rows from `first_row` on brought into it. One thread.
template <typename Ring, int kSlots>
__device__ __forceinline__ void fill(Ring& ring, Place<kSlots>& place, const CUtensorMap& map, int first_row,
                                     int head) {
  mbarrier_wait(&ring.empty[place.slot], place.round ^ 1);  // all have read what the slot held before
  mbarrier_arrive_expect_tx(&ring.full[place.slot], sizeof(ring.tile[0]));
  load(ring.tile[place.slot], map, &ring.full[place.slot], first_row, head);
  place.advance();
}

/// Waits until the tile at `place` is there.
template <typename Ring, int kSlots>
__device__ __forceinline__ void wait_full(Ring& ring, const Place<kSlots>& place) {
  mbarrier_wait(&ring.full[place.slot], place.round);
}

/// Says that this warp has read the tile at `place`.
template <typename Ring, int kSlots>
__device__ __forceinline__ void release(Ring& ring, const Place<kSlots>& place) {
  if (threadIdx.x % 32 == 0) mbarrier_arrive(&ring.empty[place.slot]);
}

}  // namespace flashbook::fp8

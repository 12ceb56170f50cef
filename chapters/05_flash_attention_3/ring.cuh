//| # The ring
//|
//| Keys and values come through a ring of slots in shared memory. A slot holds one tile, of K or of V, and has two
//| mbarriers:
//|
//| | barrier | who arrives | arrivals of a phase | who waits | first wait |
//| | --- | --- | --- | --- | --- |
//| | `full`  | the producer, with the number of bytes to come; then the bytes | 1 | every consumer thread | parity 0 |
//| | `empty` | lane 0 of each consumer warp, when the products that read the tile are done | 4 a warpgroup | the producer | parity 1 |
//|
//| Parity 0 is the first phase of a barrier: consumers wait for the end of the first filling. The producer must not wait
//| for a first emptying, since the slots begin empty: it asks for parity 1, the phase *before* the first, which counts as
//| over. When both have gone round the ring once, they ask for the other parity.
//|
//| Nobody counts tiles: producer and consumers walk the same order, each with a place of its own, and the barriers keep
//| them less than one round apart. That is what makes one bit of parity enough.
#pragma once
#include "chapters/05_flash_attention_3/moments.cuh"
#include "chapters/05_flash_attention_3/tiles.cuh"
#include "common/ptx/mbarrier.h"

namespace flashbook::flash3 {

constexpr int kWarpsOfWarpgroup = kWarpgroup / 32;

template <typename T, int kKeys, int kHeadDim, int kSlots>
struct Ring {
  Tile<T, kKeys, kHeadDim> tile[kSlots];
  uint64_t full[kSlots];   ///< a tile has landed
  uint64_t empty[kSlots];  ///< all consumers have read it
};

/// One thread makes the barriers, before the block's first __syncthreads.
template <typename T, int kKeys, int kHeadDim, int kSlots>
__device__ void initialise(Ring<T, kKeys, kHeadDim, kSlots>& ring, int consumers) {
  for (int slot = 0; slot < kSlots; ++slot) {
    mbarrier_init(&ring.full[slot], 1);
    name_mbarrier(&ring.full[slot], "full", slot);
    mbarrier_init(&ring.empty[slot], consumers * kWarpsOfWarpgroup);
    name_mbarrier(&ring.empty[slot], "empty", slot);
  }
}

// BEGIN SOLUTION ch05-ring
/// A place in the ring: a slot, and the parity of the round.
template <int kSlots>
struct Place {
  int slot = 0;
  uint32_t round = 0;  ///< 0 the first time round the ring, then 1, then 0

  __device__ __forceinline__ Place next() const {
    return slot + 1 == kSlots ? Place{0, round ^ 1} : Place{slot + 1, round};
  }
  __device__ __forceinline__ void advance() { *this = next(); }
};

/// Waits for the slot to be empty and has `head`'s rows from `first_row` on brought into it. One thread of
/// the producer.
template <typename T, int kKeys, int kHeadDim, int kSlots>
__device__ __forceinline__ void fill(Ring<T, kKeys, kHeadDim, kSlots>& ring, Place<kSlots>& place,
                                     const CUtensorMap& map, int first_row, int head) {
  mbarrier_wait(&ring.empty[place.slot],
                place.round ^ 1);  // all consumers have read what the slot held before
  mbarrier_arrive_expect_tx(&ring.full[place.slot], Tile<T, kKeys, kHeadDim>::kBytes);
  load(ring.tile[place.slot], map, &ring.full[place.slot], first_row, head);
  place.advance();
}

/// Waits until the tile at `place` has landed.
template <typename T, int kKeys, int kHeadDim, int kSlots>
__device__ __forceinline__ void wait_full(Ring<T, kKeys, kHeadDim, kSlots>& ring,
                                          const Place<kSlots>& place) {
  mbarrier_wait(&ring.full[place.slot], place.round);
}
//~ /// A place in the ring: a slot, and the parity of the round.
//~ template <int kSlots>
//~ struct Place {
//~   int slot = 0;
//~   uint32_t round = 0;  ///< 0 the first time round the ring, then 1, then 0
//~
//~   __device__ __forceinline__ Place next() const {
//~     return Place{slot, round};  // TODO: the place after this one
//~   }
//~   __device__ __forceinline__ void advance() { *this = next(); }
//~ };
//~
//~ /// Waits for the slot to be empty and has `head`'s rows from `first_row` on brought into it. One thread of
//~ /// the producer.
//~ template <typename T, int kKeys, int kHeadDim, int kSlots>
//~ __device__ __forceinline__ void fill(Ring<T, kKeys, kHeadDim, kSlots>& ring, Place<kSlots>& place,
//~                                      const CUtensorMap& map, int first_row, int head) {
//~   // TODO: what has to happen before a copy may begin, so that nothing is overwritten and that the barrier
//~   // knows what is to come?
//~   load(ring.tile[place.slot], map, &ring.full[place.slot], first_row, head);
//~   place.advance();
//~ }
//~
//~ /// Waits until the tile at `place` has landed.
//~ template <typename T, int kKeys, int kHeadDim, int kSlots>
//~ __device__ __forceinline__ void wait_full(Ring<T, kKeys, kHeadDim, kSlots>& ring,
//~                                           const Place<kSlots>& place) {
//~   mbarrier_wait(&ring.full[place.slot], 0);  // TODO: of which phase?
//~ }
// END SOLUTION ch05-ring

/// Says that this warp has read the tile at `place`.
template <typename T, int kKeys, int kHeadDim, int kSlots>
__device__ __forceinline__ void release(Ring<T, kKeys, kHeadDim, kSlots>& ring, const Place<kSlots>& place) {
  if (threadIdx.x % 32 == 0) mbarrier_arrive(&ring.empty[place.slot]);
}

//| ## In which order
//|
//| Tiles of keys go from the last to the first: the ragged end and the causal diagonal come first, and the loop over the
//| rest needs no mask. Without overlap consumers want K and V of one tile, then of the next. With it (step 4) they want the
//| next K before this V:
//|
//| | | | | | | | |
//| | --- | --- | --- | --- | --- | --- | --- |
//| | in pairs | K3 | V3 | K2 | V2 | K1 | V1 | K0 V0 |
//| | keys first | K3 | K2 | V3 | K1 | V2 | K0 | V1 V0 |

/// Streams the K and V of `tiles` tiles of keys through the ring, the last first. One thread of the producer.
template <typename Config, bool kKeysFirst, typename T, int kKeys, int kHeadDim, int kSlots>
__device__ __forceinline__ void stream(Ring<T, kKeys, kHeadDim, kSlots>& ring, Place<kSlots>& place,
                                       const CUtensorMap& k_map, const CUtensorMap& v_map, int tiles,
                                       int kv_head) {
  if constexpr (kKeysFirst) fill(ring, place, k_map, (tiles - 1) * kKeys, kv_head);
#pragma unroll 1  // the producer has few registers
  for (int tile = tiles - 1; tile >= 0; --tile) {
    const int k_tile = kKeysFirst ? tile - 1 : tile;
    if (k_tile >= 0) {
      fill(ring, place, k_map, k_tile * kKeys, kv_head);
      Config::record(Moment::keys_sent, k_tile);
    }
    fill(ring, place, v_map, tile * kKeys, kv_head);
    Config::record(Moment::values_sent, tile);
  }
}

}  // namespace flashbook::flash3

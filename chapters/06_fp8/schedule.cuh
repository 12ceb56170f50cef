//| # Who does what, and when
//|
//| Up to step 4 a block does one tile of queries and ends; the next block on that multiprocessor begins from nothing. In
//| step 5 as many blocks start as there are multiprocessors, and each takes tile after tile. While its consumers finish
//| one, its producers already load the next.
//|
//| **Order.** Under a causal mask tiles differ in length by a factor of N / 128. Whoever gets a long one last makes all
//| others wait, so the longest go first, and a block that is done takes the next that is left: a counter in global memory
//| hands them out (`Schedule::first_come`). Without a mask all are equal, and block b takes tiles b, b + blocks, ...
//| (`Schedule::in_turn`).
//|
//| **L2.** Longest first for *all* heads at once would read every head's keys before it reads any twice, from device memory
//| each time. So heads are taken in sections, as many as fit 32 MB of keys and values, and the longest go first within a
//| section.
#pragma once
#include "chapters/06_fp8/ring.cuh"

namespace flashbook::fp8 {

/// How a block comes by its tiles.
enum class Schedule {
  one_tile,   ///< one for each block
  in_turn,    ///< every gridDim.x-th
  first_come  ///< what a counter gives
};

/// The tiles of a launch, in order. Made by the host.
struct TileOrder {
  int tiles;             ///< of all heads
  int tiles_of_head;     ///< query tiles of a head
  int heads;             ///< batch * heads
  int heads_of_section;  ///< that are worked on at once
  bool longest_first;    ///< within a section: the last queries of all its heads, then those before
};

/// What a block works on: a tile of queries.
struct Work {
  int head;
  int query_tile;  ///< negative: there is none, the block is done
};

/// Tile number `index`.
__device__ inline Work work_at(const TileOrder& order, int index) {
  if (index >= order.tiles) return {0, -1};
  if (!order.longest_first) return {index / order.tiles_of_head, index % order.tiles_of_head};
  const int tiles_of_section = order.tiles_of_head * order.heads_of_section;
  const int section = index / tiles_of_section, place = index % tiles_of_section;
  const int first_head = section * order.heads_of_section;
  const int heads = min(order.heads_of_section, order.heads - first_head);  // the last section may be smaller
  return {first_head + place % heads, order.tiles_of_head - 1 - place / heads};
}

//| ## The notice board
//|
//| One thread, the producer of keys, knows what comes next. The others read it from a board in shared memory with two
//| sheets, so that the next tile is known before the last is done. Each sheet has two mbarriers, as a slot of the ring
//| does:
//|
//| | barrier | who arrives | arrivals of a phase | who waits | first wait |
//| | --- | --- | --- | --- | --- |
//| | `posted` | the producer of keys, when it has written the sheet | 1 | consumers, the other three warps of the producer | parity 0 |
//| | `read` | one thread of each warp that has read it | 4 a consumer warpgroup, and 3 | the producer of keys | parity 1 |

constexpr int kSheets = 2;

/// In shared memory.
struct Board {
  Work sheet[kSheets];
  uint64_t posted[kSheets], read[kSheets];
};

/// One thread makes the barriers. `readers` are warps.
__device__ inline void initialise(Board& board, int readers) {
  for (int i = 0; i < kSheets; ++i) {
    mbarrier_init(&board.posted[i], 1);
    name_mbarrier(&board.posted[i], "posted", i);
    mbarrier_init(&board.read[i], readers);
    name_mbarrier(&board.read[i], "read", i);
  }
}

/// Writes the next sheet. One thread.
__device__ __forceinline__ void post(Board& board, Place<kSheets>& place, Work work) {
  mbarrier_wait(&board.read[place.slot], place.round ^ 1);  // all have read what the sheet said before
  board.sheet[place.slot] = work;
  mbarrier_arrive(&board.posted[place.slot]);
  place.advance();
}

/// Reads the next sheet. `kWarp`: a whole warp does; else one thread alone.
template <bool kWarp>
__device__ __forceinline__ Work next_work(Board& board, Place<kSheets>& place) {
  mbarrier_wait(&board.posted[place.slot], place.round);
  const Work work = board.sheet[place.slot];
  if constexpr (kWarp) __syncwarp();  // all lanes have read it
  if (!kWarp || threadIdx.x % 32 == 0) mbarrier_arrive(&board.read[place.slot]);
  place.advance();
  return work;
}

}  // namespace flashbook::fp8

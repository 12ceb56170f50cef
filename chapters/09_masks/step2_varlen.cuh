//| # Step 2: packed sequences
//|
//| If a batch of 1000, 37 and 4096 tokens is padded to the longest, 58 % of it is padding. So sequences are
//| packed one after another, without gaps, and `cu_seqlens` stores where each begins. Each sequence is cut
//| into its own tiles, and a block must find out which sequence its tile of queries belongs to. (The code
//| calls a packed sequence a document with bounds.)
//|
//| ![Three packed sequences: the last tile of the first reaches into the second, and the map ends where the
//| sequence does](../../docs/figures/packed_end.svg)
#pragma once
#include "chapters/09_masks/step3_ranges.cuh"
#include "common/ptx/dependent_launch.h"

namespace flashbook::masks {

//| ## A plan
//|
//| A small kernel of one block runs before the launch and makes the plan: sequences by length, the longest
//| first, and the number of tiles of queries before each. If a long sequence began last, all blocks would
//| wait for it, as in chapter 5's tile scheduler. The kernel sorts into buckets, one for each number of tiles
//| of keys; the order within a bucket does not matter.

constexpr int kPlanThreads = 1024;

/// The plan, in device memory.
struct Plan {
  int* sorted;      // [documents], the longest first
  int* first_tile;  // [documents + 1], in sorted order: a head's query tiles before it
};

//| Each thread gets the sum of all threads before it: first within its warp, by shuffles over distances of 1,
//| 2, 4, 8 and 16, then over the sums of the 32 warps.
/// Returns the sum over the threads before this one, and in `total` over all threads of the block.
__device__ inline int sum_before(int value, int& total) {
  __shared__ int warp_sums[kPlanThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int sum = value;  // sum up to and including this lane
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int other = __shfl_up_sync(kWholeWarp, sum, distance);
    if (lane >= distance) sum += other;
  }
  __syncthreads();  // all have read the previous call's sums
  if (lane == 31) warp_sums[warp] = sum;
  __syncthreads();  // all warps have written their sums
  //| Then each thread adds up the sums of earlier warps.
  int before = 0;
  total = 0;
  for (int i = 0; i < kPlanThreads / 32; ++i) {
    if (i == warp) before = total;
    total += warp_sums[i];
  }
  return before + sum - value;
}

//| **Rows after the last sequence.** A buffer may be longer than its sequences, and only the device knows
//| where they end. No tile covers the rows after them, so their output would stay unwritten. But a weight
//| gradient sums over all rows of the buffer, and a single NaN would spoil it. So the planning launch has
//| additional blocks, which write zeros from the end of the last sequence on. Usually there is nothing to
//| write: such a block reads one number and exits while the first block plans.
/// A packed tensor of 16-bit elements whose rows from `*end` on would stay unwritten.
struct OpenEnd {
  void* first = nullptr;  // [rows, heads, columns] by strides
  Strides strides = {};
  int heads = 0, rows = 0, columns = 0;
  const int* end = nullptr;

  //| All threads of those blocks number the 16-byte pieces in the same order, and each takes its share in
  //| strides: the pieces of a row, then its heads, then the next row. So neighbouring threads write
  //| neighbouring bytes.
  /// Writes zeros to all rows from the end on, 16 bytes per thread and iteration.
  __device__ void clear(int64_t thread, int64_t threads) const {
    const int pieces = columns / 8, from = heads > 0 ? *end : 0;
    for (int64_t i = thread; i < int64_t(rows - from) * heads * pieces; i += threads) {
      const int64_t row = from + i / pieces / heads, head = i / pieces % heads;
      *reinterpret_cast<uint4*>(static_cast<char*>(first) +
                                2 * (row * strides.row + head * strides.head + i % pieces * 8)) = {};
    }
  }
};

/// The outputs of a launch for packed sequences.
struct OpenEnds {
  OpenEnd tensors[3] = {};
  float* lse = nullptr;  // [heads, rows] of the first tensor

  __device__ void clear(int64_t thread, int64_t threads) const {
    for (const OpenEnd& tensor : tensors) tensor.clear(thread, threads);
    if (lse == nullptr) return;
    const OpenEnd& o = tensors[0];
    const int from = *o.end, count = o.rows - from;
    for (int64_t i = thread; i < int64_t(count) * o.heads; i += threads)
      lse[i / count * o.rows + from + i % count] = -INFINITY;
  }
};

//| If documents are a mask, as in step 5, tiles cover all rows of the buffer, and rows after the last
//| document come out as if they belonged to it. A second launch clears them.
/// Clears the rows after the last sequence. Blocks of kPlanThreads.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) clear_behind(OpenEnds open) {
  open.clear(int64_t(blockIdx.x) * kThreads + threadIdx.x, int64_t(gridDim.x) * kThreads);
}

/// Makes the plan for tiles of kRows rows and kKeys keys in its first block, of kPlanThreads; the others
/// clear the rows after the last sequence. `Sequences` is Packed, or has the same functions.
template <int kRows, int kKeys, typename Sequences>
__global__ void __launch_bounds__(kPlanThreads) make_plan(Sequences documents, Plan plan, OpenEnds open) {
  if (blockIdx.x > 0)
    return open.clear(int64_t(blockIdx.x - 1) * kPlanThreads + threadIdx.x,
                      int64_t(gridDim.x - 1) * kPlanThreads);
  //| Each length in tiles of keys has a bucket, the longest first. This is a counting sort: count each
  //| bucket, sum the counts to find where each begins, and let each sequence take the next place of its
  //| bucket.
  __shared__ int bucket[kPlanThreads];  // the longest first; all longer ones share bucket 0
  const int thread = threadIdx.x;
  const auto bucket_of = [&](const Sequence& s) {
    return kPlanThreads - 1 - min(ceil_div(s.keys, kKeys), kPlanThreads - 1);
  };
  bucket[thread] = 0;
  __syncthreads();  // all buckets are empty
  for (int i = thread; i < documents.count; i += kPlanThreads)
    atomicAdd(&bucket[bucket_of(documents.at(i))], 1);
  __syncthreads();  // all sequences are counted
  int total;
  const int before = sum_before(bucket[thread], total);
  bucket[thread] = before;
  __syncthreads();  // each bucket holds the place of its first sequence
  for (int i = thread; i < documents.count; i += kPlanThreads)
    plan.sorted[atomicAdd(&bucket[bucket_of(documents.at(i))], 1)] = i;
  __syncthreads();  // all sequences are sorted
  //| Last, it sums up the tiles of queries in the sorted order, 1024 sequences at a time. The sum after the
  //| last sequence is the number of tiles per head.
  int tiles = 0;
  for (int first = 0; first < documents.count; first += kPlanThreads) {
    const int i = first + thread;
    const int own =
        i < documents.count ? ceil_div(documents.at(plan.sorted[i]).queries, documents.queries_of(kRows)) : 0;
    const int before = sum_before(own, total);
    if (i < documents.count) plan.first_tile[i] = tiles + before;
    tiles += total;
  }
  if (thread == 0) plan.first_tile[documents.count] = tiles;
  wait_for_launch_before();  // step 6: the next kernel relies on the previous one, too
}

//| ## Finding the sequence
//|
//| The lanes of the deciding warp search together (`last_at_most` in `problem.cuh`). A thousand sequences
//| take two rounds. A sequence without queries has no tile, and begins where the next one does. So the right
//| one is the *last* that begins at or before the place.
//|
//| ## Rows that end where the sequence does
//|
//| TMA skips rows past the end of a *tensor*, but after a packed sequence comes the next one. Its keys could
//| be masked, but its values would still be multiplied by 0, and 0 times NaN is NaN. And a tile of outputs
//| that is stored whole would overwrite its neighbour's first rows.
//|
//| The tensor map solves both. It claims that the tensor has M = 2^30 rows, and that a sequence of n rows is
//| the last n of them. So the row after the sequence's last would be row M, which does not exist: TMA loads
//| zeros in its place and never stores to it. A second index, e, locates the rows: row e of the tensor is the
//| one after the sequence.
//|
//|     address(row, e) = base + row * row_bytes + e * row_bytes - M * row_bytes,   0 <= row < M
//|
//| Row M - n + r is at base + (e - n + r) * row_bytes, as it should be.
//|
//| **A subtraction without negative numbers.** How can a map subtract M rows? Its strides are positive, and
//| its base must be allocated memory. (Maps that began before their tensor worked until nothing was allocated
//| there, and then gave an illegal address, see [the
//| appendix](appendix.md#a-map-that-began-before-its-tensor).) But addresses have 64 bits, and their sums
//| wrap around. So one more dimension, with a stride of 2^34 - row_bytes and the constant index 2^30, adds
//| 2^64 - M * row_bytes. (Triton's `ragged_tma.py` uses the same ideas.)
//|
//| **Five dimensions** are all that a map can have: column, row, panel, e and the wrap. The head has to share
//| one with e. Both are multiples of a unit, the greatest common divisor of the bytes between heads and
//| between rows (`MapStrides`).

constexpr int kVarlenMapRows = 1 << 30;
constexpr int kWrap = 1 << 30;

/// Returns where TMA finds a sequence's rows in a packed tensor.
__device__ inline MapRows varlen_rows(int first, int count) {
  return {kVarlenMapRows - count, first + count, kWrap};
}

//| ## The policy
//|
//| Windows and prefixes count within a sequence, so the rest is step 3 without documents. Within a sequence
//| the last tile of queries goes first.
/// The rows of packed sequences.
struct Packed : DocumentBounds {
  __device__ static int entry(int) { return 0; }  ///< batch entry: there is only one
  __device__ static constexpr int queries_of(int tile_rows) { return tile_rows; }
  __device__ MapRows q_rows(int, const Sequence& sequence) const {
    return varlen_rows(sequence.first_query, sequence.queries);
  }
  __device__ MapRows k_rows(int, const Sequence& sequence) const {
    return varlen_rows(sequence.first_key, sequence.keys);
  }
};

/// The order of the tiles of planned sequences.
template <typename Sequences>
struct InPlan {
  Sequences documents;
  Plan plan;
  int heads_of_section;

  //| Only the device knows how many tiles there are.
  __device__ int count(const Problem& problem) const {
    return plan.first_tile[documents.count] * problem.heads;
  }
  template <int kRows>
  __device__ Work work(const Problem& problem, int index) const {
    const int tiles = plan.first_tile[documents.count];
    if (tiles == 0 || index / tiles >= problem.heads) return {{0, 0}, {}, {}, {}, -1, 0, 0};
    const int first_head = index / (tiles * heads_of_section) * heads_of_section;
    const int heads = min(heads_of_section, problem.heads - first_head), at = index - first_head * tiles;
    //| Takes a section of heads at a time, as in chapter 5, so that its keys and values stay in the L2.
    //| Within a section all heads begin with the longest sequence. These are real divisions, a few per tile
    //| of queries: only the device knows the number of tiles, so the host cannot prepare a `Divisor`.
    const int sorted = last_at_most(plan.first_tile, documents.count, at / heads);
    const int number = plan.sorted[sorted];
    const Sequence s = documents.at(number);
    const int tile = documents.queries_of(kRows), last_tile = (s.queries - 1) / tile;
    return {{first_head + at % heads, documents.entry(number)},
            s,
            documents.q_rows(number, s),
            documents.k_rows(number, s),
            (last_tile - (at / heads - plan.first_tile[sorted])) * tile,
            0,
            0};
  }
};

/// Step 2. Its ranges have no documents.
struct Varlen : InPlan<Packed>, InRanges {
  static constexpr Extras kExtras = {.prepared = true, .documents = true};
  Unchanged score;
};

}  // namespace flashbook::masks

//| # Step 10: merging eight rows at a time
//|
//| As in [step 4](last_arriver.cuh), the last to arrive merges, but here a block may have 128 rows of sixteen
//| parts, and what counts is how often a warp waits for the L2. With a row at a time and 16 rows per warp, it
//| waited so often that merging took longer than reading 8k keys. So a warpgroup arrives as a whole, its four
//| warps share its rows evenly, and each warp requests four parts of eight rows before it uses the first.
#pragma once
#include "chapters/08_decoding/last_arriver.cuh"

namespace flashbook::decoding {

//| The warpgroups share tiles but are otherwise independent: each has a named barrier for its queries. They
//| synchronise only where both zero the last values.
/// Named barriers: one per warpgroup of consumers, one for both, and one for the consumers and the producers.
enum WarpgroupBarrier { kFirstGroup = 1, kSecondGroup = 2, kBothGroups = 3, kQueriesRequested = 4 };

/// Waits for the other warps of the thread's warpgroup.
__device__ __forceinline__ void sync_warpgroup() {
  if (threadIdx.x < kWarpgroup)
    named_barrier_sync<kFirstGroup, kWarpgroup>();
  else
    named_barrier_sync<kSecondGroup, kWarpgroup>();
}

/// Merges rows `first`, ..., `first` + 7, and so on every `step` rows, up to `end`; `place(part, row)` is the
/// place of a row's part. One warp.
template <int kHeadDim, typename Place, typename Store>
__device__ __forceinline__ void merge_rows(const Partials& partials, int parts, int first, int end, int step,
                                           Place place, Store store) {
  using Row = WarpRow<kHeadDim>;
  constexpr int kAtOnce = 8, kPartsAtOnce = 32 / kAtOnce;  // a lane has the weight of one part of one row
  constexpr int kInFlight = kHeadDim == 256 ? 2 : kPartsAtOnce;  // parts whose loads fit into registers
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int row = first; row < end; row += step) {
    Row sum[kAtOnce] = {};
    const int own_row = min(row + lane % kAtOnce, end - 1);
    float max = -INFINITY, weights = 0;  // for the lane's own row
#pragma unroll 1
    for (int group = 0; group < parts; group += kPartsAtOnce) {
      //| The loads of O do not wait for the weights. Parts past the last are loaded too, and ignored.
      Row loaded[kInFlight][kAtOnce];
      const auto load = [&](int from) {
#pragma unroll
        for (int i = 0; i < kInFlight; ++i)
#pragma unroll
          for (int r = 0; r < kAtOnce; ++r)
            loaded[i][r].load(partials.o + place(min(from + i, parts - 1), min(row + r, end - 1)) * kHeadDim);
      };
      const int own_part = group + lane / kAtOnce;
      const float lse = own_part < parts ? partials.lse[place(own_part, own_row)] : -INFINITY;
      load(group);
      //| Four lanes share a row. Its maximum may grow from group to group, and then the earlier sums shrink,
      //| as in the softmax.
      float new_max = fmaxf(max, lse);
#pragma unroll
      for (int distance = kAtOnce; distance < 32; distance *= 2)
        new_max = fmaxf(new_max, __shfl_xor_sync(kWholeWarp, new_max, distance));
      const float shrink = max == -INFINITY ? 0 : exp2_approx((max - new_max) / kLn2);
      const float own_weight = lse == -INFINITY ? 0 : exp2_approx((lse - new_max) / kLn2);
      weights = weights * shrink + own_weight;
      max = new_max;
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        const float factor = __shfl_sync(kWholeWarp, shrink, r);
#pragma unroll
        for (int c = 0; c < Row::kColumns; ++c) sum[r].value[c] *= factor;
      }
#pragma unroll
      for (int i = 0; i < kPartsAtOnce; ++i) {
        if (i > 0 && i % kInFlight == 0) load(group + i);
#pragma unroll
        for (int r = 0; r < kAtOnce; ++r) {
          const float weight = __shfl_sync(kWholeWarp, own_weight, i * kAtOnce + r);
          if (weight == 0) continue;  // O of a part without keys was never written
#pragma unroll
          for (int c = 0; c < Row::kColumns; ++c)
            sum[r].value[c] += weight * loaded[i % kInFlight][r].value[c];
        }
      }
    }
#pragma unroll
    for (int distance = kAtOnce; distance < 32; distance *= 2)
      weights += __shfl_xor_sync(kWholeWarp, weights, distance);
    //| Divide by the weights' sum; its logarithm gives the row's log-sum-exp. A row without keys gets 0 and
    //| -inf.
    const float inverse = weights > 0 ? 1 / weights : 0;
    const float lse = weights > 0 ? max + __log2f(weights) * kLn2 : -INFINITY;
#pragma unroll
    for (int r = 0; r < kAtOnce; ++r) {
      const float factor = __shfl_sync(kWholeWarp, inverse, r);
      sum[r].lse = __shfl_sync(kWholeWarp, lse, r);
#pragma unroll
      for (int c = 0; c < Row::kColumns; ++c) sum[r].value[c] *= factor;
      if (row + r < end) store(sum[r], row + r);
    }
  }
}

//| The warpgroups with the same 64 rows share a counter. A barrier collects the writes of four warps, and one
//| thread then publishes them all.
/// Counts the warpgroup as arrived with its part of the segment's item, and returns whether it is the last.
/// `is_last` is in shared memory, one for each warpgroup.
__device__ __forceinline__ bool group_arrives_last(const Segment& segment, const Workspace& workspace,
                                                   bool& is_last) {
  sync_warpgroup();  // all four warps have written their part
  if (threadIdx.x % kWarpgroup == 0) {
    unsigned* arrived = &workspace.arrivals[segment.first_block * kMaxRingWarps + threadIdx.x / kWarpgroup];
    is_last = atomic_add_acq_rel(arrived, 1u) == unsigned(segment.parts - 1);
    if (is_last) atomicExch(arrived, 0u);  // reset for the next launch
  }
  sync_warpgroup();  // all may read what that thread has acquired
  return is_last;
}

/// Counts the warpgroup as arrived, and merges its rows if it is the last. All threads of a warpgroup that
/// has rows of the item.
template <typename T, typename Traits, typename PlanType>
__device__ __forceinline__ void finish_parts_of_rows(const Problem& problem, const PlanType& plan,
                                                     const Segment& segment, const Workspace& workspace,
                                                     bool& is_last, int first_row, T* o, float* lse) {
  const int first = threadIdx.x / kWarpgroup * kRowsPerWarpgroup;  // its first row in the block
  const int end = min(first + kRowsPerWarpgroup, plan.rows_of(problem, segment.pack) - first_row);
  if (first >= end || !group_arrives_last(segment, workspace, is_last)) return;
  constexpr int kStep = 8;
  const int warp = threadIdx.x / 32 % kWarpsPerWarpgroup;
  const Pack of = plan.rows_at(problem, segment.pack);
  merge_rows<Traits::kHeadDim>(
      workspace.partials, segment.parts, first + warp * kStep, end, kWarpsPerWarpgroup * kStep,
      [&](int part, int row) { return int64_t(place_of<Traits>(segment.first_block, part, row)); },
      [&](const WarpRow<Traits::kHeadDim>& row, int tile_row) {
        store_finished<T>(row, workspace.whole, problem, plan, of, first_row + tile_row, o, lse);
      });
}

}  // namespace flashbook::decoding

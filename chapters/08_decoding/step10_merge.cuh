//| # Step 10: merging four rows at a time
//|
//| The last warp to arrive merges, as in [step 4](last_arriver.cuh), and here each warp has 16 rows. Merged
//| one after another, every row would wait for memory twice: for its weights, and then for its parts. Four
//| rows at a time wait together.
#pragma once
#include "chapters/08_decoding/last_arriver.cuh"

namespace flashbook::decoding {

/// Merges rows `first` ... `end` - 1, four at a time; `place(part, row)` is where a part of a row is. One
/// warp.
template <int kHeadDim, typename Place, typename Store>
__device__ __forceinline__ void merge_rows(const Partials& partials, int parts, int first, int end,
                                           Place place, Store store) {
  constexpr int kAtOnce = 4, kPartsAtOnce = 32 / kAtOnce;  // a lane has one part of one row
  const int lane = threadIdx.x % 32, own_part = lane / kAtOnce;
#pragma unroll 1
  for (int row = first; row < end; row += kAtOnce) {
    WarpRow<kHeadDim> sum[kAtOnce] = {};
    const int own_row = min(row + lane % kAtOnce, end - 1);
    //| Eight lanes share a row, with every eighth part each, and find its largest log-sum-exp.
    float max = -INFINITY;  // of the lane's own row
#pragma unroll 1
    for (int part = own_part; part < parts; part += kPartsAtOnce)
      max = fmaxf(max, partials.lse[place(part, own_row)]);
#pragma unroll
    for (int distance = kAtOnce; distance < 32; distance *= 2)
      max = fmaxf(max, __shfl_xor_sync(kWholeWarp, max, distance));
    //| Then the weights, of eight parts of four rows at a time. Each lane computes one, and all lanes need
    //| it, since each has some columns of every row.
    float weights = 0;
    for (int group = 0; group < parts; group += kPartsAtOnce) {
      const int part = group + own_part;
      const float lse = part < parts ? partials.lse[place(part, own_row)] : -INFINITY;
      const float own_weight = lse == -INFINITY ? 0 : exp2_approx((lse - max) / kLn2);
      weights += own_weight;
#pragma unroll 2
      for (int i = 0; i < kPartsAtOnce && group + i < parts; ++i)
#pragma unroll
        for (int r = 0; r < kAtOnce; ++r) {
          WarpRow<kHeadDim> of_part;
          of_part.load(partials.o + place(group + i, min(row + r, end - 1)) * kHeadDim);
          const float weight = __shfl_sync(kWholeWarp, own_weight, i * kAtOnce + r);
          if (weight == 0) continue;
#pragma unroll
          for (int c = 0; c < of_part.kColumns; ++c) sum[r].value[c] += weight * of_part.value[c];
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
      for (int c = 0; c < sum[r].kColumns; ++c) sum[r].value[c] *= factor;
      if (row + r < end) store(sum[r], row + r);
    }
  }
}

//| The counter is shared by the warps with the same 16 rows in all blocks that have a part of them.
/// Counts the warp as arrived, and merges its 16 rows if it is the last. All consumer warps.
template <typename T, typename Traits, typename PlanType>
__device__ __forceinline__ void finish_parts_of_rows(const Problem& problem, const PlanType& plan,
                                                     const Segment& segment, const Workspace& workspace,
                                                     int first_row, T* o, float* lse) {
  const int warp = threadIdx.x / 32, rows = plan.rows_of(problem, segment.pack) - first_row;
  const int first = warp * kRowsOfMma, end = min(first + kRowsOfMma, rows);  // of the block's rows
  if (first >= end || !arrives_last(segment, workspace)) return;
  const Pack of = plan.rows_at(problem, segment.pack);
  merge_rows<Traits::kHeadDim>(
      workspace.partials, segment.parts, first, end,
      [&](int part, int row) { return int64_t(place_of<Traits>(segment.first_block, part, row)); },
      [&](const WarpRow<Traits::kHeadDim>& row, int tile_row) {
        store_finished<T>(row, workspace.whole, problem, plan, of, first_row + tile_row, o, lse);
      });
}

}  // namespace flashbook::decoding

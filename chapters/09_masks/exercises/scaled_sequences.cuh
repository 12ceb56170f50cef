/// \file
/// Exercise ch09-next: a store that overwrites the next document.
#pragma once
#include "common/device/kernel.h"
#include "common/ptx/convert.h"
#include "common/ptx/fence.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/tma.h"

namespace flashbook::masks {

constexpr int kScaledRows = 32, kScaledColumns = 64;  // rows and columns of a tile

struct ScaledShared {
  alignas(1024) __half tile[kScaledRows][kScaledColumns];
  uint64_t landed;
};

// Sequences are packed in a tensor. Both maps have kMapRows rows and two more dimensions: one whose stride
// is also a row, and one whose index kBack subtracts kMapRows rows (step2_varlen.cuh):
//
//     (column, row, end, kBack)  is row  row + end - kMapRows  of the tensor, and exists if row <
//     kMapRows
//
constexpr int kMapRows = 1 << 30, kBack = 1 << 30;

// BEGIN EXERCISE ch09-next: the first rows of the next sequence
/// Multiplies each sequence by its own factor, the last one first. One warp; dynamic shared memory:
/// ScaledShared.
__global__ void __launch_bounds__(32)
    scale_sequences(const __grid_constant__ CUtensorMap from,  // [kBack + 1, rows + 1, kMapRows, 64], f16
                    const __grid_constant__ CUtensorMap to,    // likewise
                    const int* first_row,                      // [sequences + 1]
                    const float* factor,                       // [sequences]
                    int sequences) {
  auto& shared = *dynamic_shared<ScaledShared>();
  if (threadIdx.x == 0) {
    mbarrier_init(&shared.landed, 1);
    name_mbarrier(&shared.landed, "landed");
    fence_mbarrier_init();
  }
  __syncwarp();  // the barrier is ready
  uint32_t parity = 0;
  for (int sequence = sequences - 1; sequence >= 0; --sequence) {
    const int begin = first_row[sequence], count = first_row[sequence + 1] - begin;
    for (int tile = 0; tile < count; tile += kScaledRows, parity ^= 1) {
      const int end = first_row[sequences], row = kMapRows - end + begin + tile;
      if (threadIdx.x == 0) {
        mbarrier_arrive_expect_tx(&shared.landed, sizeof(shared.tile));
        tma_load(shared.tile, from, &shared.landed, {0, row, end, kBack});
      }
      mbarrier_wait(&shared.landed, parity);  // the tile has arrived
      for (int i = threadIdx.x; i < kScaledRows * kScaledColumns; i += 32) {
        __half& element = shared.tile[i / kScaledColumns][i % kScaledColumns];
        element = from_float<__half>(to_float(element) * factor[sequence]);
      }
      fence_proxy_async();
      __syncwarp();  // all lanes have written, so TMA may read
      if (threadIdx.x == 0) {
        tma_store(to, shared.tile, {0, row, end, kBack});
        tma_store_commit();
        tma_store_wait_read<0>();
      }
      __syncwarp();  // TMA has read the tile: the next one may be loaded
    }
  }
}
// END EXERCISE ch09-next

}  // namespace flashbook::masks

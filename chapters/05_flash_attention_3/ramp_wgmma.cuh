//| # One product of a warpgroup
//|
//| Here one `wgmma` computes a product of 64 rows and 32 columns, 16 terms deep, and both operands are in
//| shared memory. A row of 16 numbers is 32 bytes, the span of the narrowest swizzle: four rows keep their
//| two 16-byte pieces in order, and the next four swap them. In this kernel, the threads write the tiles and
//| apply the swizzle; in the other small kernels TMA does.
//|
//| The descriptor tells the tensor cores where the tile begins, which swizzle it has, and how far apart
//| groups of 8 rows are: 256 bytes. These layouts ignore the other distance, so its value 16 has no effect.
//|
//| The product runs in the background and writes to registers. So the registers change owners: the fence
//| hands them over, the wait returns them, and in between no thread touches `sums`. Afterwards thread 0 holds
//| the first two of every 8 columns in rows 0 and 8 (`common/ptx/wgmma_layout.h`).
//|
//| **Break it.** Write the tiles without `swizzled`. Nothing stops, and no rule is broken: the tensor cores
//| read the bytes as other columns, and only the comparison with the CPU's product detects it.
#pragma once
#include "common/ptx/convert.h"
#include "common/ptx/fence.h"
#include "common/ptx/wgmma.h"
#include "common/ptx/wgmma_layout.h"

namespace flashbook::fa3 {

constexpr int kRampM = 64, kRampN = 32, kRampK = 16;
constexpr int kRampShared = (kRampM + kRampN) * kRampK * 2;  ///< bytes: both tiles

/// product = a b^T with a [kRampM, kRampK] and b [kRampN, kRampK]. One block, a warpgroup.
__global__ void __launch_bounds__(128) multiply_once(const float* a, const float* b, float* product) {
  auto* const a_tile = dynamic_shared<unsigned char>();
  auto* const b_tile = a_tile + kRampM * kRampK * 2;
  const auto put = [](unsigned char* tile, int i, float value) {
    *reinterpret_cast<__half*>(tile + swizzled(Swizzle::b32, uint32_t(i) * 2)) = from_float<__half>(value);
  };
  const int thread = int(threadIdx.x);
  for (int i = thread; i < kRampM * kRampK; i += 128) put(a_tile, i, a[i]);
  for (int i = thread; i < kRampN * kRampK; i += 128) put(b_tile, i, b[i]);
  fence_proxy_async();  // the tensor cores see what this thread wrote,
  __syncthreads();      // and what all other threads wrote
  const uint64_t a_rows = wgmma_descriptor<Swizzle::b32>(a_tile, 16, 256);
  const uint64_t b_rows = wgmma_descriptor<Swizzle::b32>(b_tile, 16, 256);
  float sums[kRampN / 2];
  wgmma_fence();
  wgmma<__half, kRampN>(sums, a_rows, b_rows, false);  // false: it overwrites sums
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_pin(sums);  // no instruction: tells the compiler that sums change here
#pragma unroll
  for (int i = 0; i < kRampN / 2; ++i) {
    const MatrixPlace at = WgmmaM64<kRampN>::d(thread, i);  // place of this thread's number i in the product
    product[at.row * kRampN + at.column] = sums[i];
  }
}

}  // namespace flashbook::fa3

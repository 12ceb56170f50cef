/// \file
/// A product by wgmma from matrices in device memory, in every layout: for tests and for golden cases.
#pragma once
#include <cstdint>
#include <type_traits>

#include "common/ptx/fence.h"
#include "common/ptx/wgmma.h"

namespace flashbook {

/// The operands' types, shapes and layouts.
template <typename T, int kN, Swizzle kSwizzle, Major kMajorA, Major kMajorB, bool kRegisters,
          bool kSpread = false>
struct WgmmaCase {
  using Bits = std::conditional_t<sizeof(T) == 1, uint8_t, uint16_t>;
  static constexpr int kColumns = kN;
  static constexpr int kStepK = 32 / sizeof(T);   ///< per instruction
  static constexpr int kSteps = 4;                ///< instructions: a line of 128 bytes
  static constexpr int kInner = kSteps * kStepK;  ///< columns of a and rows of b
  static constexpr uint32_t kTileB = 48 * 1024;   ///< where b begins in shared memory, after a
  static constexpr std::size_t kSharedBytes = 208 * 1024;

  /// Returns a matrix of `rows` rows along m or n. Spread: twice the necessary distances.
  __host__ __device__ static constexpr WgmmaTile tile(Major major, int rows) {
    constexpr uint32_t kLine = swizzle_bytes(kSwizzle), kAtom = 8 * kLine;
    const uint32_t gap = kSpread ? 2 : 1;
    // Atoms next to each other across lines are contiguous; those along lines follow after all of these.
    const uint32_t groups = uint32_t(major == Major::k ? rows : kInner) / 8;
    const uint32_t across = gap * kAtom, along = groups * across;
    const bool exchanged = major == Major::mn && kSwizzle == Swizzle::none;
    return {kSwizzle, major, sizeof(T), exchanged ? across : along, exchanged ? along : across};
  }

  /// d = a * b, or c + a * b where float i of thread t of c is t % 7 - i % 5.
  static __device__ void multiply(const Bits* a,  // [64, kInner]
                                  const Bits* b,  // [kN, kInner]
                                  bool accumulate, float (&d)[kN / 2]) {
    constexpr WgmmaTile kA = tile(kMajorA, 64), kB = tile(kMajorB, kN);
    auto* shared = dynamic_shared<unsigned char>();
    const int thread = threadIdx.x;
    for (int i = thread; i < 64 * kInner; i += 128)
      *reinterpret_cast<Bits*>(shared + kA.offset(i / kInner, i % kInner)) = a[i];
    for (int i = thread; i < kN * kInner; i += 128)
      *reinterpret_cast<Bits*>(shared + kTileB + kB.offset(i / kInner, i % kInner)) = b[i];
    fence_proxy_async();
    __syncthreads();  // both tiles are written, and wgmma may see them

    const uint64_t a_tile = wgmma_descriptor<kSwizzle>(shared, kA.leading_bytes, kA.stride_bytes);
    const uint64_t b_tile = wgmma_descriptor<kSwizzle>(shared + kTileB, kB.leading_bytes, kB.stride_bytes);
    uint32_t a_registers[kSteps][4] = {};
    if constexpr (kRegisters) load_a(a, a_registers);
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) d[i] = float(thread % 7 - i % 5);

    wgmma_pin(d);  // the values must be in place before the fence
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint64_t b_step = wgmma_advance(b_tile, kB.offset(0, step * kStepK));
      if constexpr (kRegisters)
        wgmma<T, kN, kMajorB>(d, a_registers[step], b_step, accumulate || step > 0);
      else
        wgmma<T, kN, kMajorA, kMajorB>(d, wgmma_advance(a_tile, kA.offset(0, step * kStepK)), b_step,
                                       accumulate || step > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(d);
  }

 private:
  /// Loads every element into the register that WgmmaM64 assigns to it.
  static __device__ void load_a(const Bits* a, uint32_t (&registers)[kSteps][4]) {
    using Layout = WgmmaM64<kN>;
    constexpr int kElements = sizeof(T) == 1 ? Layout::kElementsA8 : Layout::kElementsA16;
    constexpr int kBits = 8 * sizeof(T), kPerRegister = 32 / kBits;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        const int thread = threadIdx.x;
        const MatrixPlace place = sizeof(T) == 1 ? Layout::a8(thread, i) : Layout::a16(thread, i);
        registers[step][i / kPerRegister] |= uint32_t(a[place.row * kInner + step * kStepK + place.column])
                                             << kBits * (i % kPerRegister);
      }
    }
  }
};

/// One warpgroup.
template <typename Case>
__global__ void __launch_bounds__(128, 1)
    multiply_by_wgmma(const typename Case::Bits* a, const typename Case::Bits* b, bool accumulate,
                      float* d) {  // [128, kColumns / 2]: the registers of each thread
  float sums[Case::kColumns / 2];
  Case::multiply(a, b, accumulate, sums);
  for (int i = 0; i < Case::kColumns / 2; ++i) d[int(threadIdx.x) * (Case::kColumns / 2) + i] = sums[i];
}

}  // namespace flashbook

/// \file
/// wgmma: the four warps of a warpgroup multiply matrices in shared memory, and continue while the tensor
/// cores work. Needs sm_90a.
///
/// Computes d = a * b, or d += a * b, for a 64xK (rows m, columns k), b KxN and d 64xN; K is 16 for 16-bit
/// elements and 32 for e4m3, so a row of K elements has 32 bytes. b is in shared memory, described by a
/// descriptor, and a may be; otherwise a is in registers, and d always is, in the layout of WgmmaM64.
///
/// The products of a warpgroup run asynchronously, in the order in which they are issued, and are waited for
/// in groups:
///
///     wgmma_fence();                               // the threads' writes to registers are visible
///     for (int k = 0; k < kSteps; ++k)
///       wgmma<__half, 128>(d, wgmma_advance(a, k * 32), wgmma_advance(b, k * 32), k > 0);
///     wgmma_commit();                              // a group of kSteps products
///     wgmma_wait<0>();
///     wgmma_pin(d);                                // now d may be read and a overwritten
///
/// Between issue and wait, no thread may access d, change a's registers, or overwrite a tile in shared
/// memory. Tiles that threads have written need fence_proxy_async first; those that TMA has loaded do not.
///
/// All functions here except wgmma_descriptor and wgmma_advance are executed by all four warps of the
/// warpgroup, the first of which has a number that is a multiple of four. (PTX ISA, Asynchronous Warpgroup
/// Level Matrix Multiply-Accumulate Instructions)
#pragma once
#include <type_traits>

#include "common/device/swizzle.h"
#include "common/ptx/call_site.h"
#include "common/ptx/shared_address.h"
#include "common/ptx/wgmma_instruction.h"
#include "common/ptx/wgmma_layout.h"

namespace flashbook {

/// An element type of wgmma.
template <typename T>
concept WgmmaElement =
    std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, __nv_fp8_e4m3>;

/// Makes the register accesses of the warpgroup's threads visible to the products that follow. It is needed
/// before the first wgmma, and before one whose accumulator or a-registers were accessed since the last
/// fence; not between products of one shape on the same accumulator. (PTX ISA, wgmma.fence)
__device__ __forceinline__ void wgmma_fence([[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#else
  sim::wgmma_fence(where);
#endif
}

/// Commits the warpgroup's products since its last commit as a group. (PTX ISA, wgmma.commit_group)
__device__ __forceinline__ void wgmma_commit([[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
  sim::wgmma_commit(where);
#endif
}

/// Waits until all of the warpgroup's groups are complete, except for the latest kInFlight. (PTX ISA,
/// wgmma.wait_group)
template <int kInFlight>
__device__ __forceinline__ void wgmma_wait([[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(0 <= kInFlight && kInFlight < 8, "wgmma.wait_group takes 0 to 7 groups");
#ifdef __CUDACC__
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kInFlight) : "memory");
#else
  sim::wgmma_wait(kInFlight, where);
#endif
}

/// Tells the compiler that `d` has its values here, and new ones from here on. The compiler knows what an asm
/// statement reads and writes, but not that products continue after it. So it may set d after the fence, or
/// read it before the wait, and ptxas then inserts its own fences and waits between the products (C7519,
/// C7514). Call it before the fence if threads set d, and after the wait. It emits no instruction.
template <int kFloats>
__device__ __forceinline__ void wgmma_pin(float (&d)[kFloats]) {
#ifdef __CUDACC__
#pragma unroll
  for (int i = 0; i < kFloats; ++i) asm volatile("" : "+f"(d[i])::"memory");
#else
  static_cast<void>(d);
#endif
}

/// Tells the compiler that kSteps fragments of a left operand keep their values in registers until this call.
/// Once a product is issued, the compiler regards an operand as read, so without warning it may reuse its
/// registers while the tensor cores still need them. Call it before the fence if threads set the fragments,
/// and after the wait. It emits no instruction.
template <int kSteps>
__device__ __forceinline__ void wgmma_pin(uint32_t (&a)[kSteps][4]) {
#ifdef __CUDACC__
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
    asm volatile("" : "+r"(a[step][0]), "+r"(a[step][1]), "+r"(a[step][2]), "+r"(a[step][3])::"memory");
#else
  static_cast<void>(a);
#endif
}

/// Returns the descriptor of a matrix at `tile`; wgmma_layout.h explains the two distances. For a K-major
/// tile with a swizzle, leading_bytes is not used, and stride_bytes is the distance between groups of 8 rows.
/// Preconditions: all three are multiples of 16; the first row of a tile with a swizzle begins at a multiple
/// of 8 of its rows: 1024 bytes for b128, 512 for b64, 256 for b32. (PTX ISA, Matrix Descriptor Format)
template <Swizzle kSwizzle>
__device__ __forceinline__ uint64_t wgmma_descriptor(const void* tile, uint32_t leading_bytes,
                                                     uint32_t stride_bytes,
                                                     [[maybe_unused]] CallSite where = CallSite::current()) {
  // A descriptor encodes swizzles by these numbers; a tensor map uses others.
  constexpr uint64_t kMode = kSwizzle == Swizzle::b128  ? 1
                             : kSwizzle == Swizzle::b64 ? 2
                             : kSwizzle == Swizzle::b32 ? 3
                                                        : 0;
#ifdef __CUDACC__
  const uint32_t address = shared_address(tile);
#else
  const uint32_t address = sim::wgmma_tile_address(tile, leading_bytes, stride_bytes, where);
#endif
  return uint64_t(address >> 4) | uint64_t(leading_bytes >> 4) << 16 | uint64_t(stride_bytes >> 4) << 32 |
         kMode << 62;
}

/// Returns the descriptor of the same layout, `bytes` further on: the next step along k, which is 32 bytes
/// further on in a K-major tile. Precondition: bytes is a multiple of 16.
__device__ __forceinline__ constexpr uint64_t wgmma_advance(uint64_t descriptor, uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

/// Computes d = a * b, or d += a * b if `accumulate`, with a and b in shared memory. `accumulate` should be a
/// constant after unrolling. Preconditions: all threads pass the same descriptors; e4m3 is K-major only. (PTX
/// ISA, wgmma.mma_async)
template <WgmmaElement T, int kN, Major kMajorA = Major::k, Major kMajorB = Major::k>
__device__ __forceinline__ void wgmma(float (&d)[kN / 2], uint64_t a, uint64_t b, bool accumulate,
                                      [[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(kN % 8 == 0 && 8 <= kN && kN <= 256, "wgmma is 8 to 256 columns wide, in steps of 8");
  static_assert(sizeof(T) == 2 || (kMajorA == Major::k && kMajorB == Major::k),
                "wgmma takes e4m3 K-major only: transpose the tile before");
#ifdef __CUDACC__
  detail::WgmmaInstruction<kN>::template multiply<T, int(kMajorA), int(kMajorB)>(d, a, b, accumulate);
#else
  constexpr sim::WgmmaKind kKind{sim::wgmma_type<T>, kN, false, kMajorA == Major::mn, kMajorB == Major::mn};
  sim::wgmma(kKind, d, nullptr, a, b, accumulate, where);
#endif
}

/// Multiplies as above, but with `a` in registers. Precondition: these registers do not change until the
/// product has been waited for.
template <WgmmaElement T, int kN, Major kMajorB = Major::k>
__device__ __forceinline__ void wgmma(float (&d)[kN / 2], const uint32_t (&a)[4], uint64_t b, bool accumulate,
                                      [[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(kN % 8 == 0 && 8 <= kN && kN <= 256, "wgmma is 8 to 256 columns wide, in steps of 8");
  static_assert(sizeof(T) == 2 || kMajorB == Major::k,
                "wgmma takes e4m3 K-major only: transpose the tile before");
#ifdef __CUDACC__
  detail::WgmmaInstruction<kN>::template multiply<T, int(kMajorB)>(d, a, b, accumulate);
#else
  constexpr sim::WgmmaKind kKind{sim::wgmma_type<T>, kN, true, false, kMajorB == Major::mn};
  sim::wgmma(kKind, d, a, 0, b, accumulate, where);
#endif
}

}  // namespace flashbook

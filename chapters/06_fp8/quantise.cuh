//| # Steps 3 and 4: the quantiser
//|
//| Somebody must make e4m3 of what a model computes in 16 bits. This kernel reads F16 or BF16 and writes encodings and
//| scales. It touches memory once: 2 bytes in and 1 byte out for each element, which at 4 TB/s is 0.08 ms for the inputs of
//| the papers' shapes, and it can be fused to what comes before the attention, the rotary embedding for example.
//|
//| **Block scales (step 3).** One large element costs all that share its scale: with 448 for it, what is 2^19 times smaller
//| becomes 0, and what is 2^15 times smaller keeps fewer than 3 bits. A scale for each 64 queries and each 128 keys
//| confines that. The block's rows are in registers when the largest element is found, so nothing is read twice.
//|
//| **Incoherent processing (step 4).** Models have outliers in a few channels, the same ones in every row: block scales do not
//| help, since every block has them. But scores are products of rows of Q and K, and a product of two vectors does not
//| change if both are rotated. A random rotation spreads a large element over all channels: of one element x, each of the
//| d gets x / sqrt(d), with a random sign. The rotation is a diagonal of signs and a Hadamard matrix, whose product with a
//| row takes d log d additions, in registers. V is not rotated: nothing would turn it back.
#pragma once
#include "chapters/06_fp8/problem.cuh"
#include "common/ptx/convert.h"

namespace flashbook::fp8 {

constexpr float kLargestE4m3 = 448;
constexpr float kLeastScale =
    0x1p-100f;                       ///< of zeros: a scale that can be divided by, and whose logarithm taken
constexpr int kRowsOfQuantiser = 8;  ///< of one warp: 64 registers of elements at d = 256

/// A lane's neighbours in a row.
template <typename T, int kCount>
struct alignas(kCount * sizeof(T)) Chunk {
  T element[kCount];
};

/// +1 or -1, at random, the same for a column of Q and of K. The bit is one of a multiplicative hash.
__device__ __forceinline__ float random_sign(uint32_t seed, int column) {
  uint32_t hash = (seed + uint32_t(column)) * 0x9e3779b1u;
  hash = (hash ^ hash >> 15) * 0x85ebca77u;
  return (hash ^ hash >> 13) & 1 ? 1.0f : -1.0f;
}

//| ## The Hadamard transform
//|
//| H of size 2n is {{H, H}, {H, -H}} of size n: log2(d) rounds, in each of which every element meets the one whose number
//| differs in one bit, and they become their sum and their difference. A lane holds d / 32 neighbours, so the lowest bits
//| are its own affair, and for the other five it exchanges with another lane. 1 / sqrt(d) makes it a rotation.

/// One row of a warp, times signs, times H / sqrt(d).
template <int kCount>
__device__ __forceinline__ void rotate(float (&x)[kCount], uint32_t seed) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kCount; ++i) x[i] *= random_sign(seed, lane * kCount + i);
#pragma unroll
  for (int bit = 1; bit < kCount; bit *= 2)
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if ((i & bit) == 0) {
        const float sum = x[i] + x[i + bit];
        x[i + bit] = x[i] - x[i + bit];
        x[i] = sum;
      }
#pragma unroll
  for (int bit = 1; bit < 32; bit *= 2)
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float other = __shfl_xor_sync(kWholeWarp, x[i], bit);
      x[i] = lane & bit ? other - x[i] : x[i] + other;
    }
  const float norm = rsqrtf(32.0f * kCount);
#pragma unroll
  for (int i = 0; i < kCount; ++i) x[i] *= norm;
}

//| ## The kernel
//|
//| A block of threads has a block of rows, a warp eight of them. Where the scale is that of a block of rows, one launch does
//| it all. Where more share a scale, a first launch finds the largest element (`kFind`), and a second one rounds
//| (`kRound`). Both read and rotate alike. The first leaves the largest of all blocks in `scale`: floats that are not
//| negative have the order of their bits, so an integer maximum does it.

/// What a launch of the quantiser does.
enum class Pass { whole, find, round };

/// Rounds one tensor. Grid: (blocks of kRows rows * heads). `scale_of_head` is how many heads share a scale,
/// 0 for all; Pass::whole has one for each block of rows.
template <typename T, int kHeadDim, int kRows, bool kRotate, Pass kPass>
__global__ void __launch_bounds__(kRows / kRowsOfQuantiser * 32)
    quantise(const T* x,              // [heads, rows, kHeadDim]
             unsigned char* encoded,  // [heads, rows, kHeadDim]
             float* scale,  // Pass::whole: [heads, blocks]; else [scales], the least before Pass::find
             int rows, int heads_of_scale, uint32_t seed) {
  constexpr int kCount = kHeadDim / 32, kWarps = kRows / kRowsOfQuantiser;
  __shared__ float largest_of_warp[kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int blocks = (rows + kRows - 1) / kRows, head = blockIdx.x / blocks;
  const int first_row = blockIdx.x % blocks * kRows + warp * kRowsOfQuantiser;

  float value[kRowsOfQuantiser][kCount], largest = 0;
#pragma unroll
  for (int r = 0; r < kRowsOfQuantiser; ++r) {
    Chunk<T, kCount> chunk{};
    if (first_row + r < rows)
      chunk = *reinterpret_cast<const Chunk<T, kCount>*>(
          x + (int64_t(head) * rows + first_row + r) * kHeadDim + lane * kCount);
#pragma unroll
    for (int i = 0; i < kCount; ++i) value[r][i] = to_float(chunk.element[i]);
    if constexpr (kRotate) rotate(value[r], seed);
#pragma unroll
    for (int i = 0; i < kCount; ++i) largest = fmaxf(largest, fabsf(value[r][i]));
  }

  if constexpr (kPass != Pass::round) {
#pragma unroll
    for (int bit = 16; bit > 0; bit /= 2) largest = fmaxf(largest, __shfl_xor_sync(kWholeWarp, largest, bit));
    if (lane == 0) largest_of_warp[warp] = largest;
    __syncthreads();  // all warps have written theirs
#pragma unroll
    for (int i = 0; i < kWarps; ++i) largest = fmaxf(largest, largest_of_warp[i]);
  }
  if constexpr (kPass == Pass::find) {
    if (threadIdx.x == 0)
      atomicMax(reinterpret_cast<int*>(scale + (heads_of_scale == 0 ? 0 : head / heads_of_scale)),
                __float_as_int(largest / kLargestE4m3));
    return;
  }

  const float shared_scale = kPass == Pass::whole ? fmaxf(largest / kLargestE4m3, kLeastScale)
                                                  : scale[heads_of_scale == 0 ? 0 : head / heads_of_scale];
  const float inverse = 1 / shared_scale;
  if (kPass == Pass::whole && threadIdx.x == 0) scale[blockIdx.x] = shared_scale;
#pragma unroll
  for (int r = 0; r < kRowsOfQuantiser; ++r) {
    if (first_row + r >= rows) continue;
    Chunk<unsigned char, kCount> bytes;
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      const uint32_t two = pack_e4m3(value[r][i] * inverse, value[r][i + 1] * inverse, 0, 0);
      bytes.element[i] = two & 0xff, bytes.element[i + 1] = two >> 8 & 0xff;
    }
    *reinterpret_cast<Chunk<unsigned char, kCount>*>(
        encoded + (int64_t(head) * rows + first_row + r) * kHeadDim + lane * kCount) = bytes;
  }
}

/// Sets scales to the least, before Pass::find.
static __global__ void clear_scales(float* scale, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) scale[i] = kLeastScale;
}

}  // namespace flashbook::fp8

//| # From sixteen bits to eight
//|
//| e4m3 has 8 bits: a sign, 4 of the exponent, 3 of the mantissa. Its largest value is 448, its smallest
//| normal one $2^{-6}$. So a tensor is stored as e4m3 times a *scale* in float32, chosen so that the largest
//| element becomes 448. Elements that share a scale should be alike; the caller chooses how many share one:
//|
//| | a scale for | layout | passes over the values |
//| | --- | --- | --: |
//| | a tile of 64 or 128 rows | [heads, tiles] | 1 |
//| | some heads, or all of a tensor | [heads / heads of a scale] | 2 |
//| | either, without the means of columns | | 2 |
//|
//| A tile's largest element can be found while the tile is in registers. A tensor's cannot: it is read once
//| for the largest element, and again to be rounded. The first of these passes also finds the means of
//| columns.
//|
//| **Budget.** A thread holds 32 values, 8 columns of four rows, in 38 to 54 registers. A tile of 64 x 64
//| takes 128 threads, a tile of 128 x 256 takes 1024. At 1024 threads per multiprocessor and 64 bytes per
//| thread, 64 KB of loads are in flight, about three times what is needed to hide the latency of memory (4.3
//| TB/s times 0.7 microseconds, over 132 multiprocessors, is 23 KB). Shared memory: at most 128 bytes, for
//| the largest element of each warp; if means are found, `head_dim` floats per warp for each of three
//| reductions (`over_columns`).
//|
//| **Predicted.** Memory is the limit. With a scale per tile, each element takes 3 bytes: 2 read, 1 written.
//| Q, K and V of 4 x 16 heads, N = 4096, d = 128 are 302 MB, which takes 70 microseconds at 4.3 TB/s. With a
//| scale per tensor it is 5 bytes per element: 117 microseconds.
//|
//| ![Q has a scale for each 64 rows, K and V one for each 128](../../docs/figures/block_scales.svg)
#pragma once
#include "chapters/06_fp8/step4_hadamard.cuh"
#include "common/attention/layout.h"
#include "common/ptx/convert.h"

namespace flashbook::quantiser {

constexpr float kLargestE4m3 = 448;
constexpr float kLeastScale = 0x1p-100f;  ///< its reciprocal is a finite float
constexpr int kRowsPerThread = 4;

/// Threads of a block that holds a tile of kRows rows.
template <int kHeadDim, int kRows>
constexpr int kThreads = kRows* kHeadDim / (kColumns * kRowsPerThread);

/// Returns the scale with which `largest` becomes 448. If all elements are zero, the scale is the smallest
/// possible: a tile of V may then have any share of a row's sum without taking e4m3's range from neighbouring
/// tiles (softmax.cuh).
__device__ __forceinline__ float scale_for(float largest) {
  return fmaxf(largest / kLargestE4m3, kLeastScale);
}

//| ## A tile in registers
//|
//| Neighbouring lanes hold neighbouring columns, so that a warp reads 512 contiguous bytes and writes 256.
//| Rows past the end are zeros: they are not read, they change no maximum, and they are not written.

/// A tile of kRows rows as the threads of a block hold it.
template <typename T, int kHeadDim, int kRows>
struct Tile {
  static constexpr int kLanes = kHeadDim / kColumns;  // per row
  static constexpr int kRowsAtOnce = kThreads<kHeadDim, kRows> / kLanes;

  float value[kRowsPerThread][kColumns];

  static __device__ __forceinline__ int row(int i) { return i * kRowsAtOnce + threadIdx.x / kLanes; }
  static __device__ __forceinline__ int64_t place(int i, int64_t row_stride) {
    return row(i) * row_stride + threadIdx.x % kLanes * kColumns;
  }

  //| All four loads are issued before the first value is used, so that they overlap. Rows past the end are
  //| not read.
  /// Loads the tile, of which `rows` rows exist.
  __device__ __forceinline__ void load(const T* tile,  // [rows, kHeadDim], strided
                                       int64_t row_stride, int rows) {
    struct alignas(16) Columns {
      T element[kColumns];
    };
    Columns columns[kRowsPerThread];
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i)  // all loads before the first use
      if (row(i) < rows) columns[i] = *reinterpret_cast<const Columns*>(tile + place(i, row_stride));
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) value[i][c] = row(i) < rows ? to_float(columns[i].element[c]) : 0;
  }

  //| Between loading and rounding, a tile changes only in registers.
  /// Rotates every row.
  __device__ __forceinline__ void rotate_rows(const Signs<kHeadDim>& signs) {
#pragma unroll
    for (auto& part : value) rotate<kHeadDim>(part, signs);
  }

  /// Subtracts its mean from each column, in rows that exist.
  __device__ __forceinline__ void subtract_means(const float* means, int rows) {  // [kHeadDim]
    const int column = threadIdx.x % kLanes * kColumns;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float mean = __ldg(means + column + c);
#pragma unroll
      for (int i = 0; i < kRowsPerThread; ++i)
        if (row(i) < rows) value[i][c] -= mean;
    }
  }

  //| Column reductions, for sums and largest elements, take three steps: a thread's own four rows, the rows
  //| of its warp by shuffles, the warps through shared memory. The order is always the same, so the sum is
  //| reproducible.
  /// Reduces column threadIdx.x, if there is one, by `combine`, over the rows that exist and `nothing`. All
  /// threads of the block.
  template <typename Combine>
  __device__ __forceinline__ float over_columns(Combine combine, float nothing, int rows) const {
    constexpr int kWarps = kThreads<kHeadDim, kRows> / 32;
    __shared__ float warp_sums[kWarps][kHeadDim];
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      float found = nothing;
#pragma unroll
      for (int i = 0; i < kRowsPerThread; ++i)
        if (row(i) < rows) found = combine(found, value[i][c]);
#pragma unroll
      for (int distance = kLanes; distance < 32; distance *= 2)
        found = combine(found, __shfl_xor_sync(kWholeWarp, found, distance));
      if (lane < kLanes) warp_sums[threadIdx.x / 32][lane * kColumns + c] = found;
    }
    __syncthreads();  // every warp has written its result
    float found = nothing;
    if (threadIdx.x < kHeadDim)
      for (int warp = 0; warp < kWarps; ++warp) found = combine(found, warp_sums[warp][threadIdx.x]);
    __syncthreads();  // all have read: the next reduction may write
    return found;
  }

  //| The largest element: first of a thread's own 32, then of the warp by shuffles, then of the block through
  //| shared memory. Every thread needs it, so every warp reduces the warps' results again.
  /// Returns the largest absolute value of the tile, for every thread of the block.
  __device__ __forceinline__ float largest() const {
    constexpr int kWarps = kThreads<kHeadDim, kRows> / 32;
    __shared__ float largest_of[kWarps];
    float found = 0;
#pragma unroll
    for (const auto& part : value)
#pragma unroll
      for (float element : part) found = fmaxf(found, fabsf(element));
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      found = fmaxf(found, __shfl_xor_sync(kWholeWarp, found, distance));
    if (threadIdx.x % 32 == 0) largest_of[threadIdx.x / 32] = found;
    __syncthreads();  // every warp has written its result
    found = largest_of[threadIdx.x % kWarps];
#pragma unroll
    for (int distance = kWarps / 2; distance > 0; distance /= 2)
      found = fmaxf(found, __shfl_xor_sync(kWholeWarp, found, distance));
    return found;
  }

  //| Eight elements of one byte are one store of 8 bytes. The conversion saturates: anything that rounds to
  //| more than 448 becomes 448.
  /// Stores the tile divided by its scale, rounded to e4m3.
  __device__ __forceinline__ void store(uint8_t* tile,  // e4m3 [rows, kHeadDim], strided
                                        int64_t row_stride, int rows, float scale) const {
    const float inverse = 1 / scale;  // one division, not 32; values beyond 448 saturate
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) {
      const auto pack_four = [&](int c) {
        return pack_e4m3(value[i][c] * inverse, value[i][c + 1] * inverse, value[i][c + 2] * inverse,
                         value[i][c + 3] * inverse);
      };
      if (row(i) < rows)
        *reinterpret_cast<uint2*>(tile + place(i, row_stride)) = make_uint2(pack_four(0), pack_four(4));
    }
  }
};

//| ## The layout of tensors
//|
//| Tensors have strides, and the encoding has the same strides as the values. A block derives its head and
//| its first row from its number.
/// The tensor as its kernels see it. A block of threads takes one tile: blockIdx.x counts them head by head.
template <typename T, int kHeadDim, int kRows>
struct Source {
  const T* values;  ///< [batch, heads, rows, kHeadDim], strided
  Strides strides;  ///< for the values and their encoding
  int heads;        ///< per batch entry
  int rows;         ///< per head
  int tiles;        ///< per head

  __device__ int head() const { return blockIdx.x / tiles; }  ///< over batch and heads together
  __device__ int first_row() const { return blockIdx.x % tiles * kRows; }
  __device__ int64_t first_element() const {
    return head() / heads * strides.batch + head() % heads * strides.head + first_row() * strides.row;
  }

  //| Each row is rotated separately, between loading and the search for the largest element. So the means are
  //| those of the rotated columns, which are the rotated means.
  /// Returns the block's tile, rotated if kRotate, with `means` subtracted unless null.
  template <bool kRotate>
  __device__ __forceinline__ Tile<T, kHeadDim, kRows> tile(const Signs<kHeadDim>& signs,
                                                           const float* means) const {  // [heads, kHeadDim]
    Tile<T, kHeadDim, kRows> loaded;
    loaded.load(values + first_element(), strides.row, rows - first_row());
    if constexpr (kRotate) loaded.rotate_rows(signs);
    if (means != nullptr) loaded.subtract_means(means + int64_t(head()) * kHeadDim, rows - first_row());
    return loaded;
  }

  __device__ __forceinline__ void store(const Tile<T, kHeadDim, kRows>& tile,
                                        uint8_t* encoded,  // e4m3 [batch, heads, rows, kHeadDim], strided
                                        float scale) const {
    tile.store(encoded + first_element(), strides.row, rows - first_row(), scale);
  }
};

//| ## A scale per tile

/// Quantises a tile by its own largest element.
template <typename T, int kHeadDim, int kRows, bool kRotate>
__global__ void __launch_bounds__(kThreads<kHeadDim, kRows>)
    quantise_tiles(Source<T, kHeadDim, kRows> source, const __grid_constant__ Signs<kHeadDim> signs,
                   const float* means,  // [heads, kHeadDim], or null
                   uint8_t* encoded,    // e4m3 [batch, heads, rows, kHeadDim], strided
                   float* scales) {     // [heads, tiles]
  const auto tile = source.template tile<kRotate>(signs, means);
  const float scale = scale_for(tile.largest());
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
  source.store(tile, encoded, scale);
}

//| ## A scale per tensor
//|
//| The largest element of all tiles is reduced by `atomicMax`. Non-negative floats are ordered like their
//| bits read as integers, so the maximum of the integers is that of the floats. The result is stored in the
//| scale's place, which starts as zero, becomes the largest element, and finally the scale.

/// Sets every scale to 0, the least of all absolute values.
__global__ void clear_largest(float* largest,  // [scales]
                              int scales) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < scales) largest[i] = 0;
}

/// Finds the largest absolute value of the heads that share a scale.
template <typename T, int kHeadDim, int kRows, bool kRotate>
__global__ void __launch_bounds__(kThreads<kHeadDim, kRows>)
    find_largest(Source<T, kHeadDim, kRows> source, const __grid_constant__ Signs<kHeadDim> signs,
                 int heads_of_scale,
                 float* largest) {  // [heads / heads_of_scale]
  const float found = source.template tile<kRotate>(signs, nullptr).largest();
  if (threadIdx.x == 0)
    atomicMax(reinterpret_cast<unsigned*>(largest) + source.head() / heads_of_scale, __float_as_uint(found));
}

//| The second pass reads the values again and rotates them again, because writing rotated values and reading
//| them back would cost more.
/// Quantises a tile by the largest element of the heads that share its scale.
template <typename T, int kHeadDim, int kRows, bool kRotate>
__global__ void __launch_bounds__(kThreads<kHeadDim, kRows>)
    quantise_heads(Source<T, kHeadDim, kRows> source, const __grid_constant__ Signs<kHeadDim> signs,
                   int heads_of_scale,
                   const float* means,    // [heads, kHeadDim], or null
                   const float* largest,  // [heads / heads_of_scale]
                   uint8_t* encoded) {    // e4m3 [batch, heads, rows, kHeadDim], strided
  source.store(source.template tile<kRotate>(signs, means), encoded,
               scale_for(largest[source.head() / heads_of_scale]));
}

//| ## The mean of a column
//|
//| All tiles of a head must agree on the mean before the first element is rounded, and so also on the largest
//| element *without* it. One pass finds both: the sum of each column and its largest and least element, from
//| which the two distances from the mean follow.
//|
//| **Sums in any order.** Tiles arrive in any order, and float sums would differ in their last bits each
//| time. So a tile's sum is rounded to a multiple of 2^-24, and sums of integers are exact. Every f16 is such
//| a multiple, so for f16 the sum is as exact as a float of 64 rows. Any number would do as a mean, as long
//| as the same one is added back; but one outside of the column would cost range, so if the sum is too large
//| for integers, the mean is clamped to between the least and the largest element.

/// A column's statistics.
struct Column {
  unsigned long long sum;  ///< sum of the elements, in units of 2^-24, of either sign
  unsigned largest;        ///< the largest element, as ordered_bits
  unsigned least_negated;  ///< minus the smallest element, as ordered_bits
};

/// Maps a float to an unsigned integer that sorts the same way, for either sign.
__device__ __forceinline__ unsigned ordered_bits(float value) {
  const unsigned bits = __float_as_uint(value);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float from_ordered_bits(unsigned ordered) {
  return __uint_as_float(ordered >> 31 ? ordered & 0x7fffffffu : ~ordered);
}

//| Sums are integers of a fixed unit, so the order in which blocks add does not matter, and the mean has the
//| same bits every time.
constexpr float kUnitsPerOne = 0x1p24f;
constexpr float kMaxSum = 0x1p22f;  ///< largest sum of a tile: 64 times the largest f16

/// Resets the statistics.
__global__ void clear_columns(Column* columns,  // [heads, head_dim]
                              int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) columns[i] = {};
}

//| A block reduces its tile to one sum, one maximum and one minimum per column, and only these three go to
//| device memory.
/// Adds a tile to its columns' statistics.
template <typename T, int kHeadDim, int kRows, bool kRotate>
__global__ void __launch_bounds__(kThreads<kHeadDim, kRows>)
    measure_columns(Source<T, kHeadDim, kRows> source, const __grid_constant__ Signs<kHeadDim> signs,
                    Column* columns) {  // [heads, kHeadDim]
  const auto tile = source.template tile<kRotate>(signs, nullptr);
  const int rows = source.rows - source.first_row();
  const float sum = tile.over_columns([](float a, float b) { return a + b; }, 0, rows);
  const float largest = tile.over_columns([](float a, float b) { return fmaxf(a, b); }, -INFINITY, rows);
  const float least = tile.over_columns([](float a, float b) { return fminf(a, b); }, INFINITY, rows);
  if (threadIdx.x >= kHeadDim) return;
  Column& column = columns[int64_t(source.head()) * kHeadDim + threadIdx.x];
  const float bounded = fminf(fmaxf(sum, -kMaxSum), kMaxSum);
  atomicAdd(&column.sum, static_cast<unsigned long long>(static_cast<long long>(bounded * kUnitsPerOne)));
  atomicMax(&column.largest, ordered_bits(largest));
  atomicMax(&column.least_negated, ordered_bits(-least));
}

//| A mean is between the least and the largest element, even if the sum was clamped. Once it is subtracted,
//| one of these two has the largest absolute value.
/// Computes the means of columns, and unless `largest` is null the largest absolute value without them of the
/// heads that share a scale. One thread per column.
__global__ void means_of_columns(const Column* columns,  // [heads, head_dim]
                                 int count, int rows, int columns_of_scale,
                                 float* means,      // [heads, head_dim]
                                 float* largest) {  // [count / columns_of_scale]
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float high = from_ordered_bits(columns[i].largest),
              low = -from_ordered_bits(columns[i].least_negated);
  const float sum = float(static_cast<long long>(columns[i].sum)) / kUnitsPerOne;
  const float mean = fminf(fmaxf(sum / float(rows), low), high);
  means[i] = mean;
  if (largest != nullptr)
    atomicMax(reinterpret_cast<unsigned*>(largest) + i / columns_of_scale,
              __float_as_uint(fmaxf(high - mean, mean - low)));
}

/// Replaces every largest element by its scale.
__global__ void largest_to_scale(float* scales,  // [scales]
                                 int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) scales[i] = scale_for(scales[i]);
}

}  // namespace flashbook::quantiser

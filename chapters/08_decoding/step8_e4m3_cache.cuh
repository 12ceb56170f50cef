//| # Step 8: keys and values of one byte
//|
//| **The limit of step 6.** Device memory is the bottleneck, and time is proportional to the cache's bytes.
//| So a cache in e4m3 should take half as long.
//|
//| **What this step does.** Keys and values are [e4m3](../../docs/pages/glossary.md#e4m3), while queries and
//| output stay in 16 bits. The ring, the plan, pages and the last to arrive are those of steps 4 to 6. This
//| file contains what is new, the path from a stage to the tensor cores.
//|
//| * **f16 in between.** Hopper converts two e4m3 to two f16 in one instruction, and exactly: f16 has more
//|   bits of exponent and of fraction. It has no such instruction for bf16. So `mma.sync` multiplies f16,
//|   whatever the queries' type.
//| * **Scales.** An element stands for its encoding times a scale, one for the whole cache, for a sequence's
//|   key head, or for a page. The scale of K goes into the scores, that of V into the probabilities. 16 keys
//|   always share a scale.
//|
//| **What it costs**, at $d = 128$, for each 16 keys of 4 KB: 64 conversions per warp. At 4.3 TB/s and 1.7
//| GHz a multiprocessor receives 19.2 bytes per clock, or 16 keys every 213 clocks, in which its four
//| schedulers have 850 issue slots.
//|
//| ![A lane loads 16 bytes of a key, eight columns: four are its part of one product, four of the
//| next](../../docs/figures/decode_lanes.svg)
#pragma once
#include "chapters/08_decoding/step9_boxes.cuh"

namespace flashbook::decoding {

//| ## Scales of 16 keys at a time
//|
//| Lane $i$ of each warp has the scales of the tile's chunk $i$. With pages they take two dependent loads, of
//| the page's number and of its scale, and each may take a microsecond. The page is looked up one tile ahead.
//| The scale is requested before the warp waits for the tile's keys, and arrives meanwhile.

/// The scales of a segment's keys, in one warp.
template <typename Traits>
class CacheScales {
 public:
  float row_factor[2] = {1, 1};  ///< by which the thread's rows of Q were divided

  __device__ __forceinline__ CacheScales(const ScaledCache& cache, const Problem& problem,
                                         const Segment& segment, int first_key)
      : cache_(cache), problem_(problem), segment_(segment), first_key_(first_key) {
    next_group_ = group_of(segment.begin);
  }

  /// Moves on to the scales of `tile`: the segment's first, then one after another.
  __device__ __forceinline__ void begin(int tile) {
    const Pack of = problem_.pack_of(segment_.pack);
    const int at = of.batch * cache_.to_batch + of.kv_head * cache_.to_head + next_group_ * cache_.to_group;
    k_ = cache_.k_scale == nullptr ? 1.0f : cache_.k_scale[at];
    v_ = cache_.v_scale == nullptr ? 1.0f : cache_.v_scale[at];
    next_group_ = group_of(tile + 1);
  }

  /// Returns the factor on scores of a chunk's keys.
  __device__ __forceinline__ float key_scale(int chunk) const { return __shfl_sync(kWholeWarp, k_, chunk); }

  //| Values are harder, because the output is a sum over pages whose scales differ. A probability times its
  //| page's scale may be too small or too large for f16. So scales are taken relative to an earlier one, as
  //| the softmax does with maxima: a scale that is more than half as large again becomes the new reference,
  //| and the output is multiplied by old over new. If all keys share one scale, that happens only once,
  //| before there is any output.
  //|
  //| **A lift.** Below $2^{-14}$ f16 loses bits. A probability is at most 1, so it is multiplied by $2^{15}$,
  //| and the output is divided by that in the end. One and a half times that is still in f16's range.
  /// Returns the factor on probabilities of a chunk's keys; rescales `output` to match.
  template <int kFloats>
  __device__ __forceinline__ float rescale_for_values(float (&output)[kFloats], int chunk) {
    const float v = __shfl_sync(kWholeWarp, v_, chunk);
    float factor = v * lift_;
    if (factor > 1.5f * kLift) {  // all lanes or none
      const float correction = kLift / factor;
#pragma unroll
      for (float& x : output) x *= correction;
      lift_ = kLift / v;
      factor = kLift;
    }
    return factor;
  }

  //| In the end the lift is undone.
  /// Divides the lift and scale out of the output. Without keys it stays 0.
  template <int kFloats>
  __device__ __forceinline__ void finish(float (&output)[kFloats]) const {
    const float factor = 1 / lift_;
#pragma unroll
    for (float& x : output) x *= factor;
  }

 private:
  static constexpr float kLift = 32768;
  static_assert(Traits::kKeys / kRowsPerMma <= 32, "a lane has the scales of one chunk");

  /// Returns the group of the lane's chunk of a tile; 0 for a chunk without keys.
  __device__ __forceinline__ int group_of(int tile) const {
    const int key = first_key_ + tile * Traits::kKeys + int(threadIdx.x % 32) * kRowsPerMma;
    if (cache_.to_group == 0 || key >= segment_.length) return 0;
    if (cache_.table == nullptr) return key >> cache_.group_bits;
    return cache_
        .table[problem_.pack_of(segment_.pack).batch * cache_.pages_of_sequence + (key >> cache_.page_bits)];
  }

  //| Each lane has the scales of one chunk of the tile, and the group number of its chunk of the next tile.
  const ScaledCache& cache_;
  const Problem& problem_;
  const Segment& segment_;
  int first_key_;
  int next_group_;         // group of the lane's chunk in the next tile
  float k_ = 1, v_ = 1;    // scales of its chunk in this one
  float lift_ = INFINITY;  // 2^15 over the reference scale of V; not set yet
};

//| ## Queries in f16
//|
//| A lane's 16 bytes of a key are 16 columns, so it has 16 of each 64 columns of Q: four products' worth.
//|
//| bf16 has a larger range than f16. So each row is scaled by a power of two that brings its largest element
//| to between $2^{14}$ and $2^{15}$. Elements more than 28 powers smaller lose bits that would not affect the
//| sum. Scores are multiplied by the power in return.

/// Returns 2^exponent.
__device__ __forceinline__ float power_of_two(int exponent) {
  return __uint_as_float(uint32_t(exponent + 127) << 23);
}

template <typename T, typename Traits, typename PlanType>
__device__ __forceinline__ void load_queries(Queries<Traits>& fragments, CacheScales<Traits>& scales,
                                             const T* q,  // [batch, heads, seqlen_q, kHeadDim], strided
                                             const Problem& problem, const PlanType& plan, int number,
                                             int first_row) {
  const Pack of = plan.rows_at(problem, number);
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + lane / 4 + 8 * r;
    const bool exists = row < plan.rows_of(problem, number);
    const T* from = q + (exists ? problem.offset(problem.q_strides, of, row) : 0) + lane % 4 * 16;
    float largest = 0;
    //| A load covers two steps of 16 columns; missing rows are zeros.
#pragma unroll
    for (int step = 0; step < Traits::kHeadDim / 16; step += 2) {
      const uint4 columns = exists ? *reinterpret_cast<const uint4*>(from + step / 4 * 64 + step % 4 * 4)
                                   : make_uint4(0, 0, 0, 0);
      fragments[step][r] = columns.x, fragments[step][r + 2] = columns.y;
      fragments[step + 1][r] = columns.z, fragments[step + 1][r + 2] = columns.w;
      const uint32_t pairs[4] = {columns.x, columns.y, columns.z, columns.w};
#pragma unroll
      for (int i = 0; i < 4; ++i)
        largest = fmaxf(largest, fmaxf(fabsf(unpack_bf16(pairs[i]).x), fabsf(unpack_bf16(pairs[i]).y)));
    }
    //| The four lanes of a row agree on its largest element, and each scales its own columns.
    if constexpr (std::is_same_v<T, __half>) continue;  // f16 already
    constexpr int kExponent = 14, kLeast = -100;        // exponents of a row's largest element
    const int exponent = max(int(__float_as_uint(quad_max(largest)) >> 23) - 127, kLeast);
    const float down = power_of_two(kExponent - exponent);
    scales.row_factor[r] = power_of_two(exponent - kExponent);
#pragma unroll
    for (int step = 0; step < Traits::kHeadDim / 16; ++step)
#pragma unroll
      for (int i = r; i < 4; i += 2) {
        const float2 pair = unpack_bf16(fragments[step][i]);
        fragments[step][i] = pack<__half>(pair.x * down, pair.y * down);
      }
  }
}

//| ## Scores
//|
//| As for 16 bits, a lane loads 16 bytes of a key, and odd keys begin with the second half of 128 bytes. Four
//| bytes become two registers of f16, one product's part.

/// scores = Q K^T for the 16 keys of a chunk, of which those below `keys` of the tile exist.
template <typename T, typename Traits, typename PlanType>
__device__ __forceinline__ void multiply_keys(float* scores, const Queries<Traits>& q,
                                              const CacheScales<Traits>& scales, const Stage<Traits>& tile,
                                              int chunk, int keys, const PlanType&) {
  const int lane = threadIdx.x % 32, first_key = chunk * kRowsPerMma + lane / 4;
  float sums[2][4] = {};  // columns 0-7, columns 8-15
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const unsigned char* row =
        tile.byte + min(first_key + 8 * n, keys - 1) * Traits::kRowBytes + lane % 4 * 16;
    const auto multiply = [&](const uint4& k, int step) {
      const uint32_t fours[4] = {k.x, k.y, k.z, k.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const F16Pairs pairs = unpack_e4m3_to_f16(fours[i]);
        mma_m16n8k16<__half>(sums[n], q[step + i], pairs.low, pairs.high, sums[n]);
      }
    };
    //| At d = 64 a row is 64 bytes, 16 for each of four lanes. Longer rows take two loads.
    if constexpr (Traits::kHeadDim == 64) {
      multiply(*reinterpret_cast<const uint4*>(row), 0);
    } else {
#pragma unroll
      for (int step = 0; step < Traits::kHeadDim / 16; step += 8) {
        uint4 k[2];
        load_two<false>(k, row + step * 16, 64, lane / 4 % 2 != 0, Traits::kRowBytes);
        multiply(k[0], step);
        multiply(k[1], step + 4);
      }
    }
  }
  const float factor = scales.key_scale(chunk);
#pragma unroll
  for (int i = 0; i < 8; ++i) scores[i] = sums[i / 4][i % 4] * (factor * scales.row_factor[row_of(i)]);
}

//| ## Values
//|
//| A register needs the same column of two keys. Bytes are rearranged before they are converted: one
//| `byte_permute` puts two columns of two keys next to each other, and two conversions turn them into two
//| registers.

/// output += P V for the 16 keys of a chunk, of which those below `keys` of the tile exist.
template <typename T, typename Traits, typename PlanType>
__device__ __forceinline__ void multiply_values(float (&output)[Traits::kHeadDim / 2], const float* p,
                                                CacheScales<Traits>& scales, const Stage<Traits>& tile,
                                                int chunk, int keys, const PlanType&) {
  constexpr int kColumns = kGroupColumns<Traits::kHeadDim>;
  constexpr uint32_t kFirstTwo = 0x5140, kLastTwo = 0x7362;  // byte selectors: four columns of both keys
  const int lane = threadIdx.x % 32;
  const float factor = scales.rescale_for_values(output, chunk);
  uint32_t a[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = pack<__half>(p[2 * i] * factor, p[2 * i + 1] * factor);
#pragma unroll
  for (int columns = 0; columns < Traits::kHeadDim; columns += kSpan<Traits::kHeadDim>) {
    //| A lane's four keys are rows 2t, 2t + 1, 2t + 8 and 2t + 9 of the chunk. Values past the last key may
    //| be NaN, and no lane loads them.
    uint32_t v[4][kColumns / 4] = {};  // [key of the lane][four columns]
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = chunk * kRowsPerMma + column_of(i / 2 * 4 + i % 2);
      const unsigned char* from = tile.byte + key * Traits::kRowBytes + columns + lane / 4 * kColumns;
      if (key >= keys) continue;
      if constexpr (kColumns == 16) {
        const auto loaded = *reinterpret_cast<const uint4*>(from);
        v[i][0] = loaded.x, v[i][1] = loaded.y, v[i][2] = loaded.z, v[i][3] = loaded.w;
      } else {
        const auto loaded = *reinterpret_cast<const uint2*>(from);
        v[i][0] = loaded.x, v[i][1] = loaded.y;
      }
    }
    //| Two columns at a time: two conversions make the right operand, and each column is one product.
#pragma unroll
    for (int column = 0; column < kColumns; column += 2) {
      const auto both = [&](int i) {
        const uint32_t first = v[i][column / 4], second = v[i + 1][column / 4];
        return unpack_e4m3_to_f16(column % 4 == 0 ? byte_permute<kFirstTwo>(first, second)
                                                  : byte_permute<kLastTwo>(first, second));
      };
      const F16Pairs upper = both(0), lower = both(2);
      float(&sums)[2][4] = *reinterpret_cast<float(*)[2][4]>(&output[columns / 2 + 4 * column]);
      mma_m16n8k16<__half>(sums[0], a, upper.low, lower.low, sums[0]);
      mma_m16n8k16<__half>(sums[1], a, upper.high, lower.high, sums[1]);
    }
  }
}

}  // namespace flashbook::decoding

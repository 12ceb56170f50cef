//| # From sums to results
//|
//| After the last tile of keys a quad adds up its four row sums, the output is divided by them and multiplied
//| by V's scale, and the log-sum-exp follows from maximum and sum. Both include the offset of P: the division
//| removes it from the output, and it is subtracted from the log-sum-exp. If V was quantised without the
//| means of its columns, they are added here, and the log-sum-exp gets what K's means would have added to it.
//|
//| Chapter 5's lanes had to exchange words before they could store 16 bytes each. Here the order of V's
//| columns already does that (`transpose.cuh`): of every 16 columns of the output, lane t of a quad holds
//| columns 4t to 4t+3 of its row, 8 bytes in BF16, and the quad stores 32 contiguous bytes, a whole sector.
//|
//| ![Chapter 5's lanes exchange words in two rounds before they store; here the order of V's columns spares
//| it](../../docs/figures/quad_transpose.svg)
#pragma once
#include "chapters/06_fp8/softmax.cuh"
#include "chapters/06_fp8/tiles.cuh"
#include "common/hopper/tiles.h"
#include "common/ptx/fence.h"

namespace flashbook::fp8 {

//| ## Means
//|
//| Let $m$ be the mean that the quantiser subtracted from every key. All of a query's scores are then smaller
//| by the same number, $q \cdot m$ times the scale. That does not affect the softmax, but it does affect the
//| log-sum-exp. So every row of queries is multiplied by $m$ once, when it arrives: each lane of a quad takes
//| every fourth piece of 16 columns, and the quad sums. The result is kept in shared memory, since the loop
//| has no register for it. It is read by the thread that wrote it, so no barrier is needed.
//|
//| The means arrive with the queries, by TMA. Loading them from the L2 where they are needed cost up to a
//| quarter of the speed at 512 keys. The values' means are read when the next queries may already have
//| arrived, so there are two places for them.

/// The means of one key head's columns.
template <int kHeadDim>
struct alignas(16) Means {
  float k[kHeadDim], v[kHeadDim];
};

//| A quad's lanes share a row: each multiplies every fourth piece of 16 columns, of both of its rows.
/// The scores that were subtracted from the thread's two rows with the keys' means, in units of log2, for the
/// first lane of a quad. `row` is the first of the two; all lanes of the warp.
template <int kHeadDim>
__device__ __forceinline__ void put_by_key_means(float (&shift)[kRowsPerWarpgroup],
                                                 Tile<kRowsPerWarpgroup, kHeadDim>& queries, int row,
                                                 const float (&mean)[kHeadDim], float factor) {
  float product[2] = {};
#pragma unroll
  for (int column = threadIdx.x % 4 * 16; column < kHeadDim; column += 64) {
    float4 column_means[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) column_means[i] = reinterpret_cast<const float4*>(mean + column)[i];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint4 q = *reinterpret_cast<const uint4*>(queries.piece(row + 8 * r, column));
      const uint32_t four[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float4 element = unpack_e4m3(four[i]);
        product[r] += element.x * column_means[i].x + element.y * column_means[i].y +
                      element.z * column_means[i].z + element.w * column_means[i].w;
      }
    }
  }
  //| A row's product is spread over four lanes, so two shuffles sum it, and one lane keeps it.
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = quad_sum(product[r]);
    if (threadIdx.x % 4 == 0) shift[row + 8 * r] = sum * factor;
  }
}

//| For the values, $O = \frac{1}{\ell} \sum_j p_j (v_j - m) + m$ is unchanged, since the weights $p_j / \ell$
//| add up to 1. A row that sees no key stays 0.

/// Adds the values' means to a finished output, for rows that see a key. A thread has four neighbouring
/// columns of every 16, see four_columns.
template <int kFloats>
__device__ __forceinline__ void add_value_means(float (&output)[kFloats], const bool (&sees)[2],
                                                const float* mean) {  // [head_dim]
#pragma unroll
  for (int block = 0; block < kFloats / 8; ++block) {
    const float4 column_means = reinterpret_cast<const float4*>(mean)[4 * block + threadIdx.x % 4];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float* const even = output + 8 * block + 2 * r;
      const float factor = sees[r] ? 1.0f : 0.0f;
      even[0] += factor * column_means.x;
      even[4] += factor * column_means.y;
      even[1] += factor * column_means.z;
      even[5] += factor * column_means.w;
    }
  }
}

//| The rest runs once per tile of queries, after the last keys.

/// Divides the output by its rows' sums, adds the means back and stores the log-sum-exp. `query` is the first
/// of the thread's two rows; `v_scale` is 1 with block scales, since P includes them; `shift` is what
/// put_by_key_means returned for these rows. `shift` and `v_mean` may be null. `kWholeSums`: each lane has
/// its row's whole sum, not a quarter.
template <int kOffset, bool kWholeSums, int kFloats>
__device__ __forceinline__ void finish_rows(float (&output)[kFloats], const Rows& rows,
                                            const Problem& problem,
                                            float* lse,  // [heads, seqlen_q]
                                            Head head, int query, float v_scale, const float* shift,
                                            const float* v_mean) {  // [2 * kFloats]
  //| The row's maximum is in log2 units and includes all scales, so it is not multiplied by anything here.
  //| The offset is subtracted from the log-sum-exp.
  float inverse[2];
  bool sees[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = kWholeSums ? rows.sum[r] : quad_sum(rows.sum[r]);
    sees[r] = sum > 0;
    inverse[r] = sees[r] ? v_scale / sum : 0;  // a row that sees no key: O = 0
    const int row = query + 8 * r;
    if (threadIdx.x % 4 == 0 && row < problem.seqlen_q)
      lse[int64_t(problem.number(head)) * problem.seqlen_q + row] =
          sees[r] ? (rows.max[r] + __log2f(sum) - kOffset + (shift ? shift[8 * r] : 0.0f)) * kLn2 : -INFINITY;
  }
  rescale_rows(output, inverse);
  if (v_mean != nullptr) add_value_means(output, sees, v_mean);
}

//| Even columns of V became rows 0 to 7 of 16, odd ones rows 8 to 15. So floats 0 and 4 of a block are
//| neighbouring columns of O, and so are 1 and 5.
/// Returns the thread's four columns, 16 * block + 4 * (lane % 4) and the next three, of its row r. Floats of
/// even columns of V come before those of odd ones.
template <int kFloats>
__device__ __forceinline__ uint2 four_columns(const float (&output)[kFloats], int block, int r) {
  const int even = 8 * block + 2 * r, odd = even + 4;
  return make_uint2(pack<__nv_bfloat16>(output[even], output[odd]),
                    pack<__nv_bfloat16>(output[even + 1], output[odd + 1]));
}

/// Stores a thread's part of the finished output.
template <int kHeadDim>
__device__ __forceinline__ void store_from_registers(
    const float (&output)[kHeadDim / 2], const Problem& problem,
    __nv_bfloat16* o,  // [batch, heads, seqlen_q, kHeadDim], strided
    Head head, int query) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = query + 8 * r;
    if (row >= problem.seqlen_q) continue;
    auto* target =
        reinterpret_cast<uint2*>(o + problem.o_offset(head, row)) + threadIdx.x % 4;  // 8 bytes each
#pragma unroll
    for (int block = 0; block < kHeadDim / 16; ++block) target[4 * block] = four_columns(output, block, r);
  }
}

//| ## Through shared memory, by TMA
//|
//| From step 5 on a block writes its output into shared memory, 8 bytes per lane, if there is space, and a
//| thread of the producer stores it by TMA while the warpgroup continues with its next queries.

/// 64 rows of the output, as TMA reads them: chapter 5's tile of 16 bits.
template <int kHeadDim>
using OutputTile = hopper::Tile<__nv_bfloat16, kRowsPerWarpgroup, kHeadDim>;

/// Writes the thread's part of the finished output, for TMA to read. `row` is the first of its two rows in
/// the tile.
template <int kHeadDim>
__device__ __forceinline__ void store_to_smem(OutputTile<kHeadDim>& tile, const float (&output)[kHeadDim / 2],
                                              int row) {
  auto* bytes = reinterpret_cast<unsigned char*>(tile.element);
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int block = 0; block < kHeadDim / 16; ++block) {
      const uint32_t panel = block / 4 * (kRowsPerWarpgroup * 128);
      const uint32_t in_panel = (row + 8 * r) * 128 + block % 4 * 32 + threadIdx.x % 4 * 8;
      *reinterpret_cast<uint2*>(bytes + panel + swizzled(Swizzle::b128, in_panel)) =
          four_columns(output, block, r);
    }
  fence_proxy_async();  // this thread's writes become visible to TMA
}

}  // namespace flashbook::fp8

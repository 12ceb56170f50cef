#pragma once
#include "chapters/06_fp8/problem.cuh"
#include "common/ptx/convert.h"
#include "common/ptx/math.h"

namespace flashbook::fp8 {

// P is encoded as the second product reads it: p times 2^unit is 2^score. Rescaling is lazy, since each
// change of the unit would cost a multiplication of O. The unit must not change while the maximum rises by no
// more than 2^2, and probabilities down to 2^-12 of the maximum lose no bit of the mantissa.

// BEGIN EXERCISE ch06-overflow: the element that is too large
/// Probabilities of each row, tile by tile, as e4m3. One block of a single warp per row.
__global__ void __launch_bounds__(32)
    encode_probabilities(const float* scores,  // [rows, tiles, 128], times log2(e)
                         uint32_t* p,          // e4m3 [rows, tiles, 128]
                         float* unit,          // [rows, tiles]
                         int tiles) {
  constexpr float kShift = 8;  // log2 of P's factor: 256, and e4m3 ends at 448
  constexpr float kLimit = 4;  // log2 of how far p may exceed 1 before the maximum follows
  float max = -INFINITY;       // maximum of the row so far, or an older one: rescaling is lazy
  for (int tile = 0; tile < tiles; ++tile) {
    const int64_t place = (int64_t(blockIdx.x) * tiles + tile) * 32 + threadIdx.x;  // place of its four keys
    const float* own = scores + 4 * place;
    float tile_max = fmaxf(fmaxf(own[0], own[1]), fmaxf(own[2], own[3]));
    for (int distance = 16; distance > 0; distance /= 2)
      tile_max = fmaxf(tile_max, __shfl_xor_sync(kWholeWarp, tile_max, distance));
    if (tile_max - max > kLimit) max = tile_max;
    const float subtract = max - kShift;
    p[place] = pack_e4m3(exp2_approx(own[0] - subtract), exp2_approx(own[1] - subtract),
                         exp2_approx(own[2] - subtract), exp2_approx(own[3] - subtract));
    if (threadIdx.x == 0) unit[int64_t(blockIdx.x) * tiles + tile] = subtract;
  }
}
// END EXERCISE ch06-overflow

}  // namespace flashbook::fp8

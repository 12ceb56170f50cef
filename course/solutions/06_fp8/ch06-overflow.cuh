/// Computes the probabilities of each row, tile by tile, in e4m3. One block of a single warp per row.
__global__ void __launch_bounds__(32)
    encode_probabilities(const float* scores,  // [rows, tiles, 128], times log2(e)
                         uint32_t* p,          // e4m3 [rows, tiles, 128]
                         float* unit,          // [rows, tiles]
                         int tiles) {
  // Both share the room above 1: 2^(6 + 2) is 256, and e4m3 ends at 448.
  constexpr float kShift = 6;  // log2 of what P is multiplied by
  constexpr float kLimit = 2;  // log2 of how far a probability may exceed 1 before the maximum follows
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

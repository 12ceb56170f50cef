/// Computes attention, with one block of a single warp per query. Scores include the factor log2(e).
__global__ void __launch_bounds__(32) attend_one_query(const float* scores,  // [rows, keys]
                                                       const float* v,       // [keys, 32]
                                                       float* o,             // [rows, 32]
                                                       int keys) {
  const int lane = threadIdx.x;
  float max = -INFINITY, sum = 0, output = 0;  // this lane's part of the sum, and its column of O
  for (int first = 0; first < keys; first += kLaneKeys) {
    const float own = first + lane < keys ? scores[blockIdx.x * keys + first + lane] : -INFINITY;
    float new_max = fmaxf(max, own);
    for (int distance = 16; distance > 0; distance /= 2)
      new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffff, new_max, distance));
    // Numbers relative to the old maximum become smaller: 2^(s - new) is 2^(s - old) * 2^(old - new).
    const float correction = first == 0 ? 0.0f : exp2_approx(max - new_max);
    max = new_max;
    const float p = exp2_approx(own - max);
    sum = sum * correction + p;
    output *= correction;
    for (int key = 0; key < kLaneKeys && first + key < keys; ++key)
      output += __shfl_sync(0xffffffff, p, key) * v[(first + key) * 32 + lane];
  }
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffff, sum, distance);
  o[blockIdx.x * 32 + lane] = output / sum;
}

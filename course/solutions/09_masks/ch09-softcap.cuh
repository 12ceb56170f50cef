/// Computes the gradient of each row of scores. One block of a single warp per row.
__global__ void __launch_bounds__(32) capped_gradient(const float* x,   // [rows, keys]
                                                      const float* dp,  // [rows, keys]
                                                      float* dx,        // [rows, keys]
                                                      int keys, float cap, bool causal) {
  const int end = causal ? min(int(blockIdx.x) + 1, keys) : keys;
  x += blockIdx.x * keys, dp += blockIdx.x * keys, dx += blockIdx.x * keys;
  const auto score = [&](int key) { return key < end ? cap * tanhf(x[key] / cap) : -INFINITY; };
  float sum = 0, d = 0;
  for (int key = threadIdx.x; key < keys; key += 32) {
    const float p = expf(score(key) - cap);  // no score is above the cap
    sum += p;
    d += p * dp[key];
  }
  sum = sum_of_warp(sum);
  d = sum_of_warp(d) / sum;
  for (int key = threadIdx.x; key < keys; key += 32) {
    const float p = expf(score(key) - cap) / sum;
    // The factor of the score before the mask: for -inf it would be -inf, and 0 * -inf is NaN.
    const float capped = tanhf(x[key] / cap);
    dx[key] = p * (dp[key] - d) * (1 - capped * capped);
  }
}

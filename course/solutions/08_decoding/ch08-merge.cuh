/// Merges the parts of a row, and its sink logit. Grid: rows; a block is a warp.
template <int kHeadDim>
__global__ void __launch_bounds__(32) merge_with_sink(const float* part_o,      // [parts, rows, kHeadDim]
                                                      const float* part_lse,    // [parts, rows]
                                                      const float* sink_logit,  // [rows]
                                                      int parts,
                                                      float* o,      // [rows, kHeadDim]
                                                      float* lse) {  // [rows]
  constexpr int kColumns = kHeadDim / 32;                            // per lane: lane, lane + 32, ...
  const int rows = gridDim.x, row = blockIdx.x, lane = threadIdx.x;
  const float sink = sink_logit[row];
  float max = sink;
  for (int part = lane; part < parts; part += 32) max = fmaxf(max, part_lse[part * rows + row]);
  for (int distance = 16; distance > 0; distance /= 2)
    max = fmaxf(max, __shfl_xor_sync(0xffffffff, max, distance));
  const auto weight_of = [&](float own) { return own == -INFINITY ? 0.0f : expf(own - max); };

  float sum = weight_of(sink), value[kColumns] = {};
  for (int part = 0; part < parts; ++part) {
    const float weight = weight_of(part_lse[part * rows + row]);
    if (weight == 0) continue;  // unwritten memory may be NaN, and 0 * NaN is NaN
    sum += weight;
    for (int c = 0; c < kColumns; ++c)
      value[c] += weight * part_o[(part * rows + row) * kHeadDim + c * 32 + lane];
  }
  for (int c = 0; c < kColumns; ++c) o[row * kHeadDim + c * 32 + lane] = sum > 0 ? value[c] / sum : 0;
  if (lane == 0) lse[row] = sum > 0 ? max + logf(sum) : -INFINITY;
}

  const int64_t at = int64_t(head) * seqlen_q + row;
  const bool is_row = row < seqlen_q;
  float sum = 0;
  for (int piece = lane; is_row && piece < head_dim / 8; piece += kLanesPerRow) {
    const auto a = reinterpret_cast<const EightElements<T>*>(o + at * o_row)[piece];
    const auto b = reinterpret_cast<const EightElements<T>*>(d_o + at * d_o_row)[piece];
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += to_float(a.values[i]) * to_float(b.values[i]);
  }
#pragma unroll
  for (int distance = kLanesPerRow / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(0xffffffff, sum, distance);
  if (lane == 0) d[int64_t(head) * padded_q + row] = is_row ? sum - d_lse[at] : 0.0f;

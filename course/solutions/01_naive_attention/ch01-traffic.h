  // The causal mask hides half of a head's tokens * tokens pairs.
  double pairs() const { return tokens * tokens / 2; }
  // Each pair takes a dot product of head_dim elements and adds head_dim weighted elements to O; a
  // multiply-add counts as two FLOPs.
  double flops() const { return 4 * heads * head_dim * pairs(); }
  // Q and O have all heads, K and V have fewer.
  double input_output_bytes() const { return 2 * tokens * head_dim * (2 * heads + 2 * kv_heads); }
  // Each query head has its own scores, and memory is also allocated for masked scores.
  double score_bytes() const { return tokens * tokens * heads * (4 + 2); }
  // S is written, then read for the maximum, the sum and the quotients; P is written and read.
  double step1_bytes() const { return input_output_bytes() + pairs() * heads * (4 * 4 + 2 * 2); }
  // S and P are each written and read once.
  double step4_bytes() const { return input_output_bytes() + pairs() * heads * (2 * 4 + 2 * 2); }
  double flops_per_byte() const { return flops() / step4_bytes(); }

  // Half of the square of one head.
  double pairs() const { return tokens * tokens / 2; }
  // A pair takes a dot product of so many numbers and an addition of as many weighted ones; a multiply-add
  // counts as two.
  double flops() const { return 4 * heads * head_dim * pairs(); }
  // Q and O have all heads, K and V have fewer.
  double input_output_bytes() const { return 2 * tokens * head_dim * (2 * heads + 2 * kv_heads); }
  // Each query head has its own scores, and memory is allocated for the masked ones too.
  double score_bytes() const { return tokens * tokens * heads * (4 + 2); }
  // S is written, then read for the maximum, the sum and the quotients; P is written and read.
  double step1_bytes() const { return input_output_bytes() + pairs() * heads * (4 * 4 + 2 * 2); }
  // S is written and read once.
  double step4_bytes() const { return input_output_bytes() + pairs() * heads * (2 * 4 + 2 * 2); }
  double flops_per_byte() const { return flops() / step4_bytes(); }

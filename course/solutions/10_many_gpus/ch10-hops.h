  // Two tensors, two bytes per element.
  double bytes_forward() const { return 2 * tokens * kv_heads * head_dim * 2; }
  // And two more, four bytes per element.
  double bytes_backward() const { return bytes_forward() + 2 * tokens * kv_heads * head_dim * 4; }
  // 4 tokens^2 d heads / F >= 4 tokens d kv_heads / W.
  double least_tokens() const { return flops_per_second / bytes_per_second * kv_heads / heads; }
  double least_tokens_causal() const { return 2 * least_tokens(); }
  // Three times the bytes, 2.5 times the FLOPs.
  double least_tokens_backward() const { return 3 / 2.5 * least_tokens(); }
  // P - 1 whole chunks and half of its own, relative to an average of P / 2.
  double last_rank() const { return (ranks - 0.5) / (ranks / 2); }
  // Q and O, and K and V, of all heads except its own share.
  double bytes_ulysses() const {
    return (ranks - 1) / ranks * tokens * head_dim * (2 * heads + 2 * kv_heads) * 2;
  }
  // The heads of all other ranks.
  double bytes_decoding() const { return (ranks - 1) / ranks * heads * (head_dim + 1) * 4; }

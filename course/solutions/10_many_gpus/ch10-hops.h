  // K and V, with two bytes per element.
  double bytes_forward() const { return 2 * tokens * kv_heads * head_dim * 2; }
  // Also dK and dV, with four bytes per element.
  double bytes_backward() const { return bytes_forward() + 2 * tokens * kv_heads * head_dim * 4; }
  // Solves 4 tokens^2 d heads / F >= 4 tokens d kv_heads / W.
  double least_tokens() const { return flops_per_second / bytes_per_second * kv_heads / heads; }
  double least_tokens_causal() const { return 2 * least_tokens(); }
  // Three times the bytes, 2.5 times the FLOPs.
  double least_tokens_backward() const { return 3 / 2.5 * least_tokens(); }
  // The last rank computes P - 1 whole chunks and half of its own; the average is P / 2.
  double last_rank() const { return (ranks - 0.5) / (ranks / 2); }
  // A rank exchanges Q, K, V and O of all heads except its own share.
  double bytes_ulysses() const {
    return (ranks - 1) / ranks * tokens * head_dim * (2 * heads + 2 * kv_heads) * 2;
  }
  // Partial results for the heads of all other ranks.
  double bytes_decoding() const { return (ranks - 1) / ranks * heads * (head_dim + 1) * 4; }

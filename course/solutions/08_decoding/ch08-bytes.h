  // 1 + 2 + ... + tokens.
  double keys_without_cache() const { return tokens * (tokens + 1) / 2; }
  // The first factor of 2 counts keys and values, the last one the bytes per element.
  double token_bytes() const { return 2 * layers * kv_heads * head_dim * 2; }
  double token_bytes_ungrouped() const { return 2 * layers * heads * head_dim * 2; }
  double token_bytes_of_latent() const { return layers * (latent + position) * 2; }
  // A sequence that fits only partly does not count.
  double sequences_that_fit() const { return std::floor((memory - weights) / (token_bytes() * tokens)); }
  // The time for one layer.
  double microseconds() const {
    return sequences * tokens * (token_bytes() / layers) / bytes_per_second * 1e6;
  }
  // O and the log-sum-exp of each row.
  double partial_bytes() const { return parts * heads * (head_dim + 1) * 4; }
  // A key head's key and value are 2 * head_dim elements, for which each head of its group does 4 * head_dim
  // FLOPs.
  double intensity_of_group() const { return heads / kv_heads * 4 * head_dim / (2 * head_dim * 2); }
  // A head multiplies by all elements for its scores and by the latent ones for O; each element is read once.
  double intensity_of_latent_head() const { return 2 * (2 * latent + position) / ((latent + position) * 2); }
  double heads_at_ridge() const {
    return std::ceil(flops_per_second / bytes_per_second / intensity_of_latent_head());
  }

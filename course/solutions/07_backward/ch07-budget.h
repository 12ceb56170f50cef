  double key_bytes() const { return 2 * keys * head_dim * 2; }
  // A stage holds rows of Q and dO; dQ is in float, and dS has two bytes per element.
  double stage_bytes() const { return 2 * queries * head_dim * 2; }
  double dq_bytes() const { return queries * head_dim * 4; }
  double ds_bytes() const { return queries * keys * 2; }
  double shared_bytes() const { return key_bytes() + 2 * stage_bytes() + dq_bytes() + 2 * ds_bytes(); }
  // Everything except K and V grows with the queries.
  double most_queries() const {
    const double of_one = (shared_bytes() - key_bytes()) / queries;
    return std::floor((227 * 1024 - key_bytes()) / of_one / 16) * 16;
  }
  // A consumer's dK and dV have keys * head_dim floats each, divided among 128 threads; S^T and dP^T are
  // divided the same way.
  double sum_registers() const { return 2 * keys / consumers * head_dim / 128; }
  double score_registers() const { return 2 * keys / consumers * queries / 128; }
  double product_clocks() const { return 5 * 2 * queries * keys * head_dim / 4096; }
  double added_bytes_a_clock() const { return dq_bytes() / product_clocks(); }

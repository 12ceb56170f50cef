  // What Q leaves of 227 KB, in rows of two bytes per element, for each stage.
  double most_keys() const {
    return std::floor((227 * 1024 - consumers * 64 * 2 * head_dim) / (stages * 2 * head_dim) / 16) * 16;
  }
  double stage_bytes() const { return keys * 2 * head_dim; }
  double shared_bytes() const { return (consumers * 64 + stages * keys) * 2 * head_dim; }
  // Lane 0 of the four warps of every consumer.
  double empty_arrivals() const { return consumers * 4; }
  // K and V of each tile, the last of which may not be full; stage 0 gets the first.
  double fillings() const { return std::ceil(2 * std::ceil(seqlen_k / keys) / stages); }
  double registers_at_start() const { return std::floor(65536 / ((consumers + 1) * 128) / 8) * 8; }
  // What the producer releases, divided among the consumers.
  double registers_of_consumer() const {
    return std::floor(((consumers + 1) * registers_at_start() - producer_registers) / consumers / 8) * 8;
  }
  // 64 rows of head_dim floats, divided among 128 threads; the scores; and P, two bytes per element.
  double registers_o() const { return 64 * head_dim / 128; }
  double registers_scores() const { return 64 * keys / 128; }
  double registers_p() const { return registers_scores() / 2; }
  // The head dimension in steps of 16, and the keys in steps of 16.
  double products() const { return head_dim / 16 + keys / 16; }
  // Two products, and one exponential per score: at head_dim 192 a third, which is worth hiding.
  double product_cycles() const { return 2 * 2 * consumers * 64 * keys * head_dim / 4096; }
  double exponential_cycles() const { return consumers * 64 * keys / 16; }

  // The rows of K or V, two bytes per element, that fit in each stage next to Q in 227 KB.
  double most_keys() const {
    return std::floor((227 * 1024 - consumers * 64 * 2 * head_dim) / (stages * 2 * head_dim) / 16) * 16;
  }
  double stage_bytes() const { return keys * 2 * head_dim; }
  double shared_bytes() const { return (consumers * 64 + stages * keys) * 2 * head_dim; }
  // Lane 0 of each of a consumer's four warps arrives.
  double empty_arrivals() const { return consumers * 4; }
  // Each tile's K and V fill one stage each; the last tile may be partial. Stage 0 is filled first.
  double fillings() const { return std::ceil(2 * std::ceil(seqlen_k / keys) / stages); }
  double registers_at_start() const { return std::floor(65536 / ((consumers + 1) * 128) / 8) * 8; }
  // The consumers share the registers that the producer releases.
  double registers_of_consumer() const {
    return std::floor(((consumers + 1) * registers_at_start() - producer_registers) / consumers / 8) * 8;
  }
  // O has 64 rows of head_dim floats, divided among 128 threads; the scores are floats too, and P has two
  // bytes per element.
  double registers_o() const { return 64 * head_dim / 128; }
  double registers_scores() const { return 64 * keys / 128; }
  double registers_p() const { return registers_scores() / 2; }
  // Q K^T advances through the head dimension, and P V through the keys, 16 at a time.
  double products() const { return head_dim / 16 + keys / 16; }
  // Two products, and one exponential per score. At head_dim 192 exponentials take a third as long, which is
  // worth hiding.
  double product_cycles() const { return 2 * 2 * consumers * 64 * keys * head_dim / 4096; }
  double exponential_cycles() const { return consumers * 64 * keys / 16; }

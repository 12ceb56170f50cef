  double stage_bytes() const { return keys * head_dim; }
  // As many stages as fit next to Q in 227 KB.
  double most_stages() const { return std::floor((227 * 1024 - consumers * 64 * head_dim) / stage_bytes()); }
  double shared_bytes() const { return consumers * 64 * head_dim + most_stages() * stage_bytes(); }
  // Lane 0 of each transposer arrives.
  double transposed_full_arrivals() const { return transposers; }
  // Lane 0 of each of a consumer's four warps arrives.
  double transposed_empty_arrivals() const { return consumers * 4; }
  // A load covers 32 keys and 16 columns, and the warps share the loads.
  double loads_of_transposer() const { return keys / 32 * (head_dim / 16) / transposers; }
  // O has 64 rows of head_dim floats, divided among 128 threads; the scores are floats too, and a register
  // holds four elements of P or Q.
  double registers_o() const { return 64 * head_dim / 128; }
  double registers_scores() const { return 64 * keys / 128; }
  double registers_p() const { return registers_scores() / 4; }
  double registers_q() const { return 64 * head_dim / 128 / 4; }
  // Q K^T advances through the head dimension, and P V through the keys, 32 at a time.
  double products() const { return head_dim / 32 + keys / 32; }
  // Two products, and one exponential per score.
  double product_cycles() const { return 2 * 2 * consumers * 64 * keys * head_dim / 8192; }
  double exponential_cycles() const { return consumers * 64 * keys / 16; }
  // TMA writes K and V, transposers read V and write it back, and each consumer reads K and V.
  double shared_memory_cycles() const { return (4 + 2 * consumers) * stage_bytes() / 128; }
  // 2^8 is 256, and 2^9 is 512, which is more than 448.
  double offset() const { return 8 - rise; }
  // 2^-6 is the smallest normal number.
  double least_exponent() const { return -6 - offset(); }

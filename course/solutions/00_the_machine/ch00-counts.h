  // A block is resident as a whole or not at all.
  double blocks_by_registers() const { return std::floor(65536 / (registers * threads)); }
  double blocks_by_shared() const { return std::floor(227 / shared_kb); }
  // Registers, shared memory or warps: whichever runs out first sets the limit.
  double occupancy() const {
    const double warps = threads / 32;
    return std::min({blocks_by_registers(), blocks_by_shared(), std::floor(64 / warps)}) * warps / 64;
  }
  // The lanes' floats span 128 * stride bytes and touch every sector. From a stride of 8 on, each lane has
  // its own sector.
  double sectors() const { return std::min(4 * stride, 32.0); }
  // 256 contiguous bytes fill 8 sectors, or parts of 9 if they begin inside one.
  double sectors_of_pairs() const { return std::ceil((std::fmod(offset, 32) + 256) / 32); }
  // Lanes i and j access the same bank if (i - j) * word_stride is a multiple of 32.
  double wavefronts() const { return std::gcd(int(word_stride), 32); }
  // The bytes that memory delivers during one load's latency, divided among 132 multiprocessors.
  double bytes_under_way() const { return bandwidth / 132 * latency / 1.8e9; }
  // Two matrix products; a multiply-add counts as two FLOPs.
  double product_clocks() const { return 2 * 2 * queries * keys * head_dim / 4096; }
  double exponential_clocks() const { return queries * keys / 16; }

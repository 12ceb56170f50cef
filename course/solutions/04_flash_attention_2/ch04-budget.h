  // Q, plus K and V for each stage, with two bytes per element.
  double shared_bytes() const { return (warps * queries + 2 * stages * keys) * 2 * head_dim; }
  double blocks() const { return std::floor(228 * 1024 / (shared_bytes() + 1024)); }
  // A warp's O has queries * head_dim floats and its scores queries * keys, each divided among 32 lanes.
  double registers_o() const { return queries * head_dim / 32; }
  double registers_scores() const { return queries * keys / 32; }
  // An instruction can name only 255 registers: the sizes above, whose O and scores take 256, would spill.
  double registers_at_most() const {
    return std::min(255.0, std::floor(65536 / (blocks() * warps * 32) / 8) * 8);
  }
  // Two products of queries * keys * head_dim multiply-adds; one mma.sync does 16 * 8 * 16 of them.
  double products() const { return 2 * queries * keys * head_dim / (16 * 8 * 16); }
  // A warp reads its rows of Q, and all rows of K and V.
  double read_bytes() const { return (queries + 2 * keys) * 2 * head_dim; }
  // All of a block's warps read K and V again: half as many queries per warp, twice as many warps.
  double block_reads_of_half() const { return 2 * warps * (queries / 2 + 2 * keys) * 2 * head_dim; }

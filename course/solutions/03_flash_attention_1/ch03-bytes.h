  // Tiles of Q, K and V with 2 bytes per element, and a tile of weights with 4 bytes per element.
  double tile_bytes() const { return 3 * 2 * rows * head_dim + 4 * rows * rows; }
  // 4 B^2 + 6 B d = 227 * 1024, solved for B.
  double largest_tile() const {
    const double d = 6 * head_dim;
    return std::floor((std::sqrt(d * d + 16 * 227 * 1024) - d) / 8 / 16) * 16;
  }
  // Every head loads K and V once and writes O and the log-sum-exp once. Q is loaded once per tile of
  // keys; O, m and l are stored by all but the last and fetched by all but the first.
  double step1_bytes() const {
    const double tiles = tokens / rows;
    return heads * tokens * (2 * head_dim * (3 + tiles) + 4 * (head_dim + 2) * 2 * (tiles - 1) + 4);
  }
  // Q and O are moved once, K and V once per tile of queries.
  double step2_bytes() const { return heads * tokens * (2 * head_dim * (2 + 2 * tokens / rows) + 4); }
  // Unfinished O, m and l are stored for every row.
  double step1_memory() const { return heads * tokens * 4 * (head_dim + 2); }
  // S takes 4 bytes and P takes 2 for every pair of every query head.
  double chapter1_memory() const { return heads * tokens * tokens * (4 + 2); }

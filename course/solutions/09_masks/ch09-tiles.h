  double rows_of_tiles(double tokens) const { return std::ceil(tokens / tile); }

  // Row r of tiles has tiles 0 to r, and the last of them is cut by the diagonal.
  double causal_tiles() const { return rows_of_tiles(n) * (rows_of_tiles(n) + 1) / 2; }
  double causal_partial_tiles() const { return rows_of_tiles(n); }
  // A row's first query sees furthest to the left.
  double window_tiles() const {
    double tiles = 0;
    for (double row = 0; row < rows_of_tiles(n); ++row)
      tiles += row - std::floor(std::max(row * tile - window, 0.0) / tile) + 1;
    return tiles;
  }
  // A tile's last query sees the fewest keys on the left, and its first query decides at the diagonal.
  double window_full_tiles() const {
    double tiles = 0;
    for (double row = 0; row < rows_of_tiles(n); ++row) {
      const double last_query = std::min(row * tile + tile, n) - 1;
      tiles += std::max(row - std::ceil(std::max(last_query - window, 0.0) / tile), 0.0);
    }
    return tiles;
  }
  // Each document has its own tiles.
  double varlen_tiles() const { return documents * rows_of_tiles(length) * (rows_of_tiles(length) + 1) / 2; }
  // The first tile of keys in a row is the one in which the document of the row's first query begins.
  double document_tiles() const {
    double tiles = 0;
    for (double row = 0; row < rows_of_tiles(documents * length); ++row)
      tiles += row - std::floor(std::floor(row * tile / length) * length / tile) + 1;
    return tiles;
  }
  // Queries see 1, 2, ... keys up to the window's width, and from then on window + 1 keys each.
  double visible_share() const {
    const double rising = std::min(n, window + 1);
    return (rising * (rising + 1) / 2 + (n - rising) * (window + 1)) / (window_tiles() * tile * tile);
  }

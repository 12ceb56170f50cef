/// Returns the class of a tile, for queries first_query to last_query.
__device__ inline TileClass classify_hidden(const HiddenFrom& least, const HiddenFrom& largest,
                                            int first_query, int last_query) {
  if (largest.begin <= first_query && least.end > last_query) return TileClass::skip;
  if (least.begin > last_query || largest.end <= first_query) return TileClass::full;
  return TileClass::partial;
}

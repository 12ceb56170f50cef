  const bool is_global = first_query < mask.global || first_key < mask.global;
  const bool in_window = last_key >= first_query - mask.window && first_key <= last_query + mask.window;
  if (!is_global && !in_window) return TileClass::skip;
  // The pairs without a global token form a rectangle, whose two corners off the diagonal are the pairs
  // furthest apart.
  const int query = max(first_query, mask.global), key = max(first_key, mask.global);
  const bool is_none = query > last_query || key > last_key;
  const bool all = is_none || (last_key - query <= mask.window && last_query - key <= mask.window);
  return all && last_key < mask.tokens ? TileClass::full : TileClass::partial;

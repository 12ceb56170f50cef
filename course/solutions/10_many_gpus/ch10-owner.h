/// Returns the rank, 0 ... ranks - 1, that owns a token.
inline int owner_of(int token, int block, int ranks) {
  const int number = token / block, round = number / ranks, turn = number % ranks;
  return round % 2 == 0 ? turn : ranks - 1 - turn;
}

/// Returns a token's place on its rank: how many tokens of that rank come before it.
inline int place_of(int token, int block, int ranks) {
  return token / (block * ranks) * block + token % block;  // one block per complete round
}

/// Returns how many of the first `tokens` tokens a rank has.
inline int tokens_of_rank(int rank, int tokens, int block, int ranks) {
  const int rounds = tokens / (block * ranks), left = tokens % (block * ranks);
  const int turn = rounds % 2 == 0 ? rank : ranks - 1 - rank;
  const int last = left - turn * block;  // tokens in the last, incomplete round
  return rounds * block + (last < 0 ? 0 : last > block ? block : last);
}

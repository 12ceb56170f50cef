/// \file
/// Exercise ch10-owner: which rank stores a token, and where.
#pragma once

namespace flashbook::many_gpus {

// Zigzag gives rank r chunks r and 2P - 1 - r of 2P. In decoding the final length of a sequence is unknown,
// so it cannot be cut into 2P chunks. Instead, tokens are distributed in blocks of `block` tokens as they are
// generated: the first P blocks to ranks 0, 1, ..., P - 1, the next P to ranks P - 1, ..., 1, 0, the next P
// forwards again, and so on. With 2P blocks that is zigzag.
//
// A rank stores its tokens contiguously, in the order of the sequence.

// BEGIN EXERCISE ch10-owner: who has a token
/// Returns which of `ranks` ranks has token `token`, 0, 1, ...
inline int owner_of(int token, int block, int ranks) {
  // TODO: distributed forwards and backwards in turn
  return token / block % ranks;
}

/// Returns a token's place on its rank: how many tokens of that rank come before it.
inline int place_of(int token, int block, int ranks) {
  // TODO: the rank's earlier blocks, and the tokens before this one in its block
  return token / ranks * (block > 0);
}

/// Returns how many of the first `tokens` tokens a rank has.
inline int tokens_of_rank([[maybe_unused]] int rank, int tokens, int block, int ranks) {
  // TODO: tokens, not rounds; the last block may be cut, and the last round may not reach the rank
  return tokens / (block * ranks);
}
// END EXERCISE ch10-owner

}  // namespace flashbook::many_gpus

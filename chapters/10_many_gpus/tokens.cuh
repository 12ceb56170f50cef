//| # A rank's tokens
//|
//| A *rank* is one of P GPUs that work on the same sequence. Each has some of its tokens: their queries, keys
//| and values, of all heads. An *order* determines which ones:
//|
//| | order | rank r of P has | under a causal mask |
//| | --- | --- | --- |
//| | contiguous | chunk r of P | the last rank does the most work, the first the least |
//| | zigzag | chunks r and 2P - 1 - r of 2P | all ranks do equal work |
//| | striped | tokens r, r + P, r + 2P and so on | all ranks do equal work, except for a diagonal |
//|
//| A rank stores its tokens contiguously, in the order of the sequence.
//|
//| ![Four ranks at each hop of a ring under a causal mask: contiguous tokens leave cells empty, in zigzag
//| every cell is half full](../../docs/figures/rank_work.svg)
#pragma once
#include "common/attention/spec.h"
#include "common/hopper/problem.h"
#include "common/hopper/tile_scheduler.h"

namespace flashbook::many_gpus {

using namespace hopper;

/// How tokens are distributed: contiguous, zigzag or striped.
using Order = TokenOrder;
constexpr Order kOrders[] = {Order::contiguous, Order::zigzag, Order::striped};

//| ## One run or two
//|
//| In the first two orders a rank has at most two runs of tokens. All later code needs only two answers:
//| where token i of the rank is in the sequence, and how many of the rank's tokens come before a given place.
/// A rank's tokens.
struct Tokens {
  int first[2];  ///< the first token of each run, by its place in the sequence
  int count[2];

  __host__ __device__ int total() const { return count[0] + count[1]; }

  /// Returns where token i of the rank, 0 <= i < total(), is in the sequence.
  __host__ __device__ int place(int i) const { return i < count[0] ? first[0] + i : first[1] + i - count[0]; }

  /// Returns how many of the rank's tokens come before a place in the sequence. They are its first tokens.
  __host__ __device__ int before(int place) const {
    int tokens = 0;
    for (int run = 0; run < 2; ++run) {
      const int many = place - first[run];
      tokens += many < 0 ? 0 : many > count[run] ? count[run] : many;
    }
    return tokens;
  }
};

//| If the chunks do not divide the tokens evenly, their lengths differ by at most one; with fewer tokens than
//| chunks, some are empty.
/// Returns the tokens of a rank.
inline Tokens tokens_of(Order order, int tokens, int rank, int ranks) {
  if (order == Order::striped) return {{0, 0}, {int((int64_t(tokens) + ranks - 1 - rank) / ranks), 0}};
  const int chunks = order == Order::zigzag ? 2 * ranks : ranks;
  const auto begin = [&](int chunk) { return int(int64_t(tokens) * chunk / chunks); };
  const int last = order == Order::zigzag ? chunks - 1 - rank : rank + 1;
  return {{begin(rank), begin(last)},
          {begin(rank + 1) - begin(rank), order == Order::zigzag ? begin(last + 1) - begin(last) : 0}};
}

//| ## Stripes
//|
//| A stripe is P consecutive tokens, one per rank. In striped order a token's place is the number of its
//| stripe, so on every rank the places are 0, 1, 2 and so on. Query i of rank r is token i P + r of the
//| sequence. It sees key j of rank s if j P + s <= i P + r + shift, that is, if j <= i + (r - s + shift) / P,
//| rounded down: an ordinary causal mask with a different shift. With as many queries as keys, the shift is 0
//| for keys of this rank and earlier ones, and -1 for later ones, which hides one more diagonal.
/// Returns the shift between the places of one rank's queries and the places of another rank's keys.
inline int shift_between(Order order, int shift, int rank, int other, int ranks) {
  if (order != Order::striped) return shift;
  const int64_t places = int64_t(shift) + rank - other;
  return int(places >= 0 ? places / ranks : -((ranks - 1 - places) / ranks));
}

//| To count a rank's tokens before place x of the sequence, count stripes: token i of rank r comes before x
//| if i P + r < x.
/// Returns how many of a rank's tokens come before `place` of the sequence, in any order.
inline int tokens_before(Order order, const Tokens& tokens, int place, int rank, int ranks) {
  return tokens.before(order == Order::striped ? (place + ranks - 1 - rank) / ranks : place);
}

//| ## The mask
//|
//| In the whole sequence query i sees the keys up to i + seqlen_k - seqlen_q. A rank starts from its queries'
//| places in the sequence and counts how many of the keys at hand, its own or another rank's, come before
//| that limit. Since keys are stored in the order of the sequence, a query always sees a prefix of them. So
//| the mask is again one number per row, the last visible key, and chapter 5's kernel needs no other,
//| whatever the order.
struct Carried;  // merge.cuh

/// The shape of one launch: queries of one rank, keys of one or of all.
struct Problem : hopper::Problem {
  Tokens queries, keys;
  int shift;       ///< seqlen_k - seqlen_q of the whole sequence, or for stripes `shift_between` two ranks
  int first_tile;  ///< first tile of queries; earlier ones see none of these keys

  /// Returns the last of these keys that `query` sees; negative if it sees none. Rows past the end see what
  /// the last row sees.
  __host__ __device__ int last_key(int query) const {
    if (!causal) return seqlen_k - 1;
    const int row = query < seqlen_q ? query : seqlen_q - 1;
    return keys.before(queries.place(row) + shift + 1) - 1;
  }

  /// Returns how many tiles of `tile` keys the queries up to `last_query` see. At least one, as in chapter 5.
  __device__ int key_tiles(int last_query, int tile) const { return max(last_key(last_query), 0) / tile + 1; }

  //| The kernel needs to know where a tile's rows and keys begin and where its rows end. Here all tiles see
  //| the same keys; with documents each tile has its own (`documents.cuh`).
  /// Returns the problem of one tile of queries.
  __device__ const Problem& for_tile(const WorkTile&) const { return *this; }
  /// Returns a tile's first row, and the end of the rows that are stored.
  __device__ int first_row(const WorkTile& work, int rows) const {
    return (first_tile + work.query_tile) * rows;
  }
  __device__ int end_row() const { return seqlen_q; }
  /// Returns the first key.
  __device__ int first_key() const { return 0; }
  /// Returns what the rank carries, with the tile's row limits.
  __device__ const Carried& carried(const Carried& launched) const { return launched; }
};

}  // namespace flashbook::many_gpus

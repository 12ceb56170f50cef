//| # Which tiles documents have
//|
//| The host's part of [`documents.cuh`](documents.cuh): the list of tiles of queries, for each hop of a ring,
//| or for the only launch of steps 1 and 5; and of tiles of keys, for each hop of the gradient's ring. Lists
//| are made once, with the program. A training step's layers all have the same documents.
//|
//| A document that lies within a rank's tokens has tiles at hop 0 only. One that straddles ranks has some at
//| the hops that bring its other tokens. A hop that brings no key of a document here launches nothing; its
//| keys travel on all the same.
//|
//| ![Three packed sequences: the last tile of the first reaches into the
//| second](../../docs/figures/packed_end.svg)
#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "chapters/10_many_gpus/host/attend.h"

namespace flashbook::many_gpus {

/// Tokens, and which rank's they are.
struct OfRank {
  Tokens tokens;
  int rank;
};

//| ## A document at one hop
//|
//| Where does a document begin among a rank's tokens? Where so many of them stand before it in the sequence.
//| And the first of its queries that sees a key of the hop is the one that sees the first key: under a causal
//| mask the first that stands late enough.
/// A document's queries and keys at a hop, as one tile of all rows that see a key; `query` is `end` if none
/// does.
inline DocumentTile at_hop(const Documents& documents, std::size_t d, bool causal, Order order, int ranks,
                           const OfRank& queries, const OfRank& keys) {
  const auto at = [&](const OfRank& of, int place) {
    return tokens_before(order, of.tokens, place, of.rank, ranks);
  };
  const int begin = at(queries, documents.first_query[d]), end = at(queries, documents.first_query[d + 1]);
  const int key = at(keys, documents.first_key[d]), count = at(keys, documents.first_key[d + 1]) - key;
  const int shift = shift_between(order, documents.first_key[d + 1] - documents.first_query[d + 1],
                                  queries.rank, keys.rank, ranks);
  int first = count > 0 ? begin : end;
  if (causal && count > 0)
    first = std::clamp(queries.tokens.before(keys.tokens.place(key) - shift), begin, end);
  return {first, end, key, count, shift, 0, 0, 0};
}

//| ## The lists
//|
//| Later rows of a document see more, so the numbers of `Hops` in `step2_ring.h` say it here, too, document
//| by document: from which row on a hop shows it a key, an earlier hop did, and no later one does.
/// The tiles of a rank's queries on the keys of one hop after another.
struct DocumentLists {
  std::vector<std::vector<DocumentTile>> hops;  ///< of each, the one with the most keys last
  bool some_row_sees_nothing = false;

  DocumentLists(const Documents& documents, bool causal, Order order, int ranks, const OfRank& queries,
                const std::vector<OfRank>& keys)
      : hops(keys.size()) {
    for (std::size_t d = 0; d + 1 < documents.first_query.size(); ++d) {
      std::vector<DocumentTile> seen;
      for (const OfRank& held : keys)
        seen.push_back(at_hop(documents, d, causal, order, ranks, queries, held));
      const auto least = [&](std::size_t begin, std::size_t end) {  // the first row that some hop shows a key
        int row = seen.front().end;
        for (std::size_t hop = begin; hop < end; ++hop) row = std::min(row, seen[hop].query);
        return row;
      };
      const int begin = tokens_before(order, queries.tokens, documents.first_query[d], queries.rank, ranks);
      some_row_sees_nothing |= least(0, keys.size()) > begin;
      for (std::size_t hop = 0; hop < keys.size(); ++hop) {
        DocumentTile tile = seen[hop];
        tile.from = least(0, hop);
        tile.until = least(hop + 1, keys.size());
        const int end = tile.end;
        for (; tile.query < end; tile.query += kRowsOfDocumentTile) {
          tile.end = std::min(tile.query + kRowsOfDocumentTile, end);
          tile.last = last_key(tile, causal, queries.tokens, keys[hop].tokens);
          hops[hop].push_back(tile);
        }
      }
    }
    //| The kernel hands out the last of a list first, so the longest stand last.
    for (std::vector<DocumentTile>& tiles : hops) std::ranges::stable_sort(tiles, {}, &DocumentTile::last);
  }

 private:
  /// The last key of its document that a tile's last row sees.
  static int last_key(const DocumentTile& tile, bool causal, const Tokens& queries, const Tokens& keys) {
    if (!causal) return tile.keys - 1;
    return std::min(keys.before(queries.place(tile.end - 1) + tile.shift + 1) - tile.key, tile.keys) - 1;
  }
};

/// A list in device memory.
template <typename T>
device::Buffer on_device(const std::vector<T>& list) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(list));
  device::Buffer buffer(device::Place::device, bytes.size());
  buffer.upload(bytes);
  return buffer;
}

/// The lists in device memory, and their launches.
class DocumentHops {
 public:
  explicit DocumentHops(const DocumentLists& lists) : some_row_sees_nothing_(lists.some_row_sees_nothing) {
    for (const std::vector<DocumentTile>& tiles : lists.hops)
      hops_.push_back({on_device(tiles), int(tiles.size())});
  }

  /// Launches attention of a hop, if any of its keys is seen; before the first one the rows that no hop shows
  /// a key get their result.
  void attend(Attention a, std::size_t hop, device::Queue& queue) const {
    if (hop == 0 && some_row_sees_nothing_) clear(a, a.shape.seqlen_q, queue);
    a.tiles = static_cast<const DocumentTile*>(hops_[hop].tiles.data());
    a.tile_count = hops_[hop].count;
    if (a.tile_count > 0) many_gpus::attend(a, queue);
  }

 private:
  struct Hop {
    device::Buffer tiles;  // DocumentTile[count]
    int count;
  };
  std::vector<Hop> hops_;
  bool some_row_sees_nothing_;
};

//| ## The gradient's lists
//|
//| `at_hop` says which of a document's queries see its first key here. A later key is seen from a later query
//| on, by the mask of `tokens.cuh` turned round. A key that no query of this rank sees has an empty run.
/// Which of a rank's queries see each key of one hop after another.
struct KeyLists {
  struct Hop {
    std::vector<QueriesOfKey> keys;  ///< in whole tiles: those behind the last key are seen by no query
    std::vector<KeyTile> tiles;      ///< the one with the most queries last
    bool is_seen = false;            ///< some query sees some key
  };
  std::vector<Hop> hops;

  KeyLists(const Documents& documents, bool causal, Order order, int ranks, const OfRank& queries,
           const std::vector<OfRank>& keys) {
    for (const OfRank& held : keys) {
      const int tiles = (held.tokens.total() + kKeysOfGradientTile - 1) / kKeysOfGradientTile;
      Hop hop;
      hop.keys.assign(std::size_t(tiles) * kKeysOfGradientTile, kSeenByNone);
      for (std::size_t d = 0; d + 1 < documents.first_query.size(); ++d) {
        const DocumentTile seen = at_hop(documents, d, causal, order, ranks, queries, held);
        for (int key = seen.key; key < seen.key + seen.keys; ++key) {
          const int begin = causal ? queries.tokens.before(held.tokens.place(key) - seen.shift) : seen.query;
          hop.keys[std::size_t(key)] = {std::clamp(begin, seen.query, seen.end), seen.end};
        }
      }
      for (int tile = 0; tile < tiles; ++tile) hop.tiles.push_back(tile_of(hop.keys, tile));
      std::ranges::stable_sort(hop.tiles, {}, &KeyLists::queries_of);
      hop.is_seen = tiles > 0 && queries_of(hop.tiles.back()) > 0;
      hops.push_back(std::move(hop));
    }
  }

 private:
  static constexpr QueriesOfKey kSeenByNone = {1 << 30, 0};

  static int queries_of(const KeyTile& tile) { return tile.queries.end - tile.queries.begin; }

  /// From the first query that sees a key of the tile to the last one.
  static KeyTile tile_of(const std::vector<QueriesOfKey>& keys, int tile) {
    const int first = tile * kKeysOfGradientTile;
    KeyTile of_keys = {first, {0, 0}};
    for (int key = first; key < first + kKeysOfGradientTile; ++key) {
      const QueriesOfKey seen = keys[std::size_t(key)];
      if (seen.begin >= seen.end) continue;
      if (of_keys.queries.end == 0) of_keys.queries.begin = seen.begin;
      of_keys.queries.end = seen.end;
    }
    return of_keys;
  }
};

/// The lists in device memory.
class KeyHops {
 public:
  /// Of a hop.
  struct Hop {
    device::Buffer keys, tiles;  // QueriesOfKey[keys], KeyTile[tiles of keys]
    bool is_seen;
  };

  explicit KeyHops(const KeyLists& lists) {
    for (const KeyLists::Hop& list : lists.hops)
      hops_.push_back({on_device(list.keys), on_device(list.tiles), list.is_seen});
  }

  const Hop& at(int hop) const { return hops_[std::size_t(hop)]; }

 private:
  std::vector<Hop> hops_;
};

}  // namespace flashbook::many_gpus

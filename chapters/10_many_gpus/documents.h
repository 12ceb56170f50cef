//| # The tiles of documents
//|
//| This is the host's part of [`documents.cuh`](documents.cuh). It lists tiles of queries for each hop of a
//| ring, or for the single launch of steps 1 and 5, and tiles of keys for each hop of the gradient's ring.
//| The lists are built once, with the program, because all layers of a training step have the same documents.
//|
//| A document that fits one rank has tiles at hop 0 only. A document that straddles ranks also has tiles at
//| the hops that bring its other tokens. A hop without any key of the rank's documents launches nothing, but
//| its keys still travel on.
//|
//| ![Three packed sequences: the last tile of the first reaches into the
//| second](../../docs/figures/packed_end.svg)
#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "chapters/10_many_gpus/host/attend.h"

namespace flashbook::many_gpus {

/// Tokens, and the rank that stores them.
struct OfRank {
  Tokens tokens;
  int rank;
};

//| ## A document at one hop
//|
//| Where does a document begin among a rank's tokens? Count the rank's tokens that come before it in the
//| sequence. And which of its queries is the first to see a key of this hop? The first that sees the
//| document's first key of the hop: under a causal mask, the first one that is late enough in the
//| sequence.
/// Returns a document's queries and keys at a hop, as one tile of all rows that see a key; `query` is `end`
/// if none does.
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
//| Later rows of a document see more keys, so three row numbers per hop are enough here too, as in `Hops` of
//| `step2_ring.h`, only document by document.
/// The tiles of a rank's queries on the keys of one hop after another.
struct DocumentLists {
  std::vector<std::vector<DocumentTile>> hops;  ///< each hop's tiles, the one with the most keys last
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
        for (; tile.query < end; tile.query += kRowsPerDocumentTile) {
          tile.end = std::min(tile.query + kRowsPerDocumentTile, end);
          tile.last = last_key(tile, causal, queries.tokens, keys[hop].tokens);
          hops[hop].push_back(tile);
        }
      }
    }
    //| The kernel takes tiles from the end of a list, so the longest come last.
    for (std::vector<DocumentTile>& tiles : hops) std::ranges::stable_sort(tiles, {}, &DocumentTile::last);
  }

 private:
  /// Returns the last key of its document that a tile's last row sees.
  static int last_key(const DocumentTile& tile, bool causal, const Tokens& queries, const Tokens& keys) {
    if (!causal) return tile.keys - 1;
    return std::min(keys.before(queries.place(tile.end - 1) + tile.shift + 1) - tile.key, tile.keys) - 1;
  }
};

/// Copies a list to device memory.
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

  /// Launches the attention for a hop, if any query sees any of its keys. Before the first launch, writes the
  /// result of rows that see no key at any hop.
  void attend(Attention a, std::size_t hop, device::Queue& queue) const {
    if (hop == 0 && some_row_sees_nothing_) clear(a, a.spec.seqlen_q, queue);
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
//| `at_hop` finds which of a document's queries see its first key. A later key is seen from a later query on,
//| by the transposed mask of `tokens.cuh`. A key that no query of this rank sees gets an empty range.
/// Which of a rank's queries see each key of one hop after another.
struct KeyLists {
  struct Hop {
    std::vector<QueriesOfKey> keys;  ///< in whole tiles: no query sees those past the last key
    std::vector<KeyTile> tiles;      ///< the tile with the most queries last
    bool is_seen = false;            ///< whether some query sees some key
  };
  std::vector<Hop> hops;

  KeyLists(const Documents& documents, bool causal, Order order, int ranks, const OfRank& queries,
           const std::vector<OfRank>& keys) {
    for (const OfRank& held : keys) {
      const int tiles = (held.tokens.total() + kKeysPerGradientTile - 1) / kKeysPerGradientTile;
      Hop hop;
      hop.keys.assign(std::size_t(tiles) * kKeysPerGradientTile, kSeenByNone);
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

  /// Returns a tile's queries: from the first to the last one that sees one of its keys.
  static KeyTile tile_of(const std::vector<QueriesOfKey>& keys, int tile) {
    const int first = tile * kKeysPerGradientTile;
    KeyTile key_tile = {first, {0, 0}};
    for (int key = first; key < first + kKeysPerGradientTile; ++key) {
      const QueriesOfKey seen = keys[std::size_t(key)];
      if (seen.begin >= seen.end) continue;
      if (key_tile.queries.end == 0) key_tile.queries.begin = seen.begin;
      key_tile.queries.end = seen.end;
    }
    return key_tile;
  }
};

/// The lists in device memory.
class KeyHops {
 public:
  /// The lists of one hop.
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

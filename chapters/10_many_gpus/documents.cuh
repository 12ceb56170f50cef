//| # Packed documents
//|
//| A sequence may pack several documents one after another, where each query sees only keys of its own
//| document. Then it sees a range in the middle of a rank's keys, not a prefix. Within its *document*,
//| however, it sees a prefix: in every order, a rank stores a document's tokens contiguously and in the order
//| of the sequence. So tiles of queries are cut document by document, and each tile records where its
//| document's keys begin on this rank. From there on the mask is again one number per row.
//|
//| The host knows where documents begin, so it makes the list of tiles for each hop
//| ([`documents.h`](documents.h)). In chapter 9 only the device knows, so a kernel makes the list.
//|
//| ![Three packed sequences: the last tile of the first reaches into the
//| second](../../docs/figures/packed_end.svg)
#pragma once
#include "chapters/10_many_gpus/merge.cuh"
#include "chapters/10_many_gpus/tokens.cuh"

namespace flashbook::many_gpus {

//| ## A tile
//|
//| A thread reads these eight words when it begins a tile. Every row of a tile sees at least one of its keys;
//| rows that see none have no tile.
constexpr int kRowsPerDocumentTile = 128;  ///< queries per tile, for every head dimension

/// A tile of queries of one document, and the keys of that document among this hop's keys.
struct DocumentTile {
  int query, end;   ///< the tile's first row, and one past its last
  int key, keys;    ///< the document's first key, and its number of keys
  int shift;        ///< as in Problem, for the document: aligned to its own last key
  int from, until;  ///< as in Carried, for the document
  int last;         ///< the last of its keys that the last row sees, relative to `key`
};

//| ## What a tile sees
//|
//| These functions replace those of `Problem`, with keys counted from the document's first. TMA also loads
//| keys of the next document, past this one's last, and the mask hides them. Their values are multiplied by
//| 0, so a NaN in them still reaches this document, as in [step 3 of chapter
//| 9](../09_masks/step3_ranges.cuh).
/// The shape of a launch, restricted to one tile.
struct InDocument : Problem {
  DocumentTile tile;

  /// Returns the last key that `query` sees, counted from the document's first.
  __device__ int last_key(int query) const {
    if (!causal) return tile.keys - 1;
    const int row = min(query, tile.end - 1);
    return min(keys.before(queries.place(row) + tile.shift + 1) - tile.key, tile.keys) - 1;
  }
  /// Returns how many tiles of `keys` keys the last row sees.
  __device__ int key_tiles(int, int keys) const { return tile.last / keys + 1; }
  __device__ int first_row(const WorkTile&, int) const { return tile.query; }
  __device__ int end_row() const { return tile.end; }
  __device__ int first_key() const { return tile.key; }
  /// Returns what the rank carries, with the limits of these rows.
  __device__ Carried carried(const Carried& launched) const {
    return {launched.o, launched.lse, tile.query, tile.from, tile.until};
  }
};

/// The shape of one launch over packed documents.
struct DocumentsProblem : Problem {
  const DocumentTile* tiles = nullptr;  // in ascending order of their number of keys

  __device__ InDocument for_tile(const WorkTile& work) const { return {*this, tiles[work.query_tile]}; }
};

//| ## The queries of a key
//|
//| In the gradient (step 6) blocks own keys and need to know which queries see a key. A rank's queries of a
//| document are contiguous, and each key is seen by the last ones of them: two numbers per key. Keys and
//| queries store their documents in the same order, so later keys are never seen by earlier queries. Hence
//| the queries that see a tile of keys are also contiguous, and tiles need not be cut at documents: short
//| ones share tiles of 128 keys.
constexpr int kKeysPerGradientTile = 128;  ///< keys per tile, for every head dimension

/// Which of a rank's queries see a key, or some key of a tile: `begin` to `end` - 1.
struct QueriesOfKey {
  int begin, end;
};

/// A tile of keys.
struct KeyTile {
  int key;  ///< the tile's first key
  QueriesOfKey queries;
};

}  // namespace flashbook::many_gpus

//| # Packed documents
//|
//| Several documents may lie one after another in the sequence, and a query sees keys of its own only. Then
//| what it sees of a rank's keys is a piece in the middle, no beginning of them. But within its *document* it
//| is a beginning again: a rank's tokens of a document lie side by side, in the order of the sequence,
//| whatever the order of dealing out is. So tiles of queries are cut document by document, and each tile
//| knows where the keys of its document begin among those that are here. From there on the mask is what it
//| was: one number a row.
//|
//| The host knows where documents begin, so it makes the list of tiles ([`documents.h`](documents.h)), a list
//| for each hop. Chapter 9 has a kernel make its list, since there only the device knows.
//|
//| ![Three packed sequences: the last tile of the first reaches into the
//| second](../../docs/figures/packed_end.svg)
#pragma once
#include "chapters/10_many_gpus/merge.cuh"
#include "chapters/10_many_gpus/tokens.cuh"

namespace flashbook::many_gpus {

//| ## A tile
//|
//| Eight words, that a thread reads when it begins the tile. All rows of a tile see at least one of its keys;
//| rows of the document that see none have no tile.
constexpr int kRowsOfDocumentTile = 128;  ///< queries of a tile, for every head dimension

/// A tile of queries of one document, and the keys of that document among those that are here.
struct DocumentTile {
  int query, end;   ///< its first row, and one behind its last
  int key, keys;    ///< the first of the document's keys, and how many there are
  int shift;        ///< as Problem's, of the document: its windows are aligned to its own last key
  int from, until;  ///< as Carried's, of the document
  int last;         ///< the last of its keys that the last row sees, counted from `key`
};

//| ## What a tile sees
//|
//| The answers are those of `Problem`, with keys counted from the document's first. Behind its last key lie
//| those of the next document, which TMA brings, too: the mask hides them. Their values are multiplied by 0,
//| so a NaN in them reaches this document, as in [step 3 of chapter 9](../09_masks/step3_ranges.cuh).
/// The shape of a launch, and one tile of it.
struct InDocument : Problem {
  DocumentTile tile;

  /// The last key that `query` sees, counted from the document's first.
  __device__ int last_key(int query) const {
    if (!causal) return tile.keys - 1;
    const int row = min(query, tile.end - 1);
    return min(keys.before(queries.place(row) + tile.shift + 1) - tile.key, tile.keys) - 1;
  }
  /// How many tiles of `keys` keys the last row sees.
  __device__ int key_tiles(int, int keys) const { return tile.last / keys + 1; }
  __device__ int first_row(const WorkTile&, int) const { return tile.query; }
  __device__ int end_row() const { return tile.end; }
  __device__ int first_key() const { return tile.key; }
  /// What the rank carries, and how these rows stand to it.
  __device__ Carried carried(const Carried& of_launch) const {
    return {of_launch.o, of_launch.lse, tile.query, tile.from, tile.until};
  }
};

/// The shape of one launch in documents.
struct DocumentsProblem : Problem {
  const DocumentTile* tiles = nullptr;  // in ascending order of their keys

  __device__ InDocument of_tile(const WorkTile& work) const { return {*this, tiles[work.query_tile]}; }
};

//| ## The queries of a key
//|
//| The gradient's blocks own keys (step 6), and ask which queries see one. The queries that a rank has of a
//| document are a run, and a key of the document is seen by an end of this run: two numbers a key. Documents
//| come in the same order in keys and in queries, so no key is seen by earlier queries than the key before
//| it. Hence tiles of keys need not be cut by document: the queries that see a tile are a run, too, and short
//| documents share tiles of 128 keys.
constexpr int kKeysOfGradientTile = 128;  ///< for every head dimension

/// Which of a rank's queries see a key, or some key of a tile: `begin` to `end` - 1.
struct QueriesOfKey {
  int begin, end;
};

/// A tile of keys.
struct KeyTile {
  int key;  ///< its first
  QueriesOfKey queries;
};

}  // namespace flashbook::many_gpus

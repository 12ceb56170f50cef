//| # Step 3: ranges of tiles
//|
//| Under a window, a prefix, attention sinks or documents a query sees one or two *ranges* of keys. So two
//| numbers per range decide whether a pair is visible, and the first and the last row of a tile of queries
//| determine which tiles of keys it needs. Only the documents' bounds are read from memory.
//|
//| ![Four masks in tiles: most tiles are skipped, some are full, and those where a mask cuts are
//| partial](../../docs/figures/mask_tiles.svg)
#pragma once
#include "chapters/09_masks/problem.cuh"
#include "common/hopper/tile_scheduler.h"

namespace flashbook::masks {

//| ## The keys of a query
//|
//| `own` is the key at the query's own place, aligned to the bottom right: the last query is at the last key.
//| A window reaches from `own - left` to `own + right`; a causal mask is a window with `right = 0`. The first
//| keys may also be visible, as a *prefix*: to all queries, or, as sinks, to all queries at or after them.
//| From one query to the next, neither end of a range moves back. The class of a tile relies on that.
//|
//| In a partial tile a thread must know for each of 32 columns whether its row sees them: two neighbours of
//| every 8. They are the bits of a word. The columns before the end of a range are a run of ones in that
//| word, those before its beginning are another, and the range is the difference. So a row costs a few
//| instructions per end of a range, and no comparison per score.
//|
//| How long is such a run? `n` keys, counted from the thread's first column, contain `n / 8` whole groups
//| with two of its columns each, and then up to two more. For example, 17 keys contain two groups and one
//| column: 5 ones.
/// Returns a one for each of a thread's kColumns columns among the `keys` keys from its first column on.
template <int kColumns>
__device__ __forceinline__ uint32_t columns_among(int keys) {
  const int inside = min(max(keys, 0), 4 * kColumns);
  return uint32_t((uint64_t(1) << (inside / 8 * 2 + min(inside % 8, 2))) - 1);
}

//| A range has the columns before its end that are not before its beginning.
/// A range of keys.
struct KeyRange {
  int begin, end;

  /// Bit i: whether it has the thread's column i. `first` is the key of its first column.
  template <int kColumns>
  __device__ uint32_t columns(int first) const {
    return columns_among<kColumns>(end - first) & ~columns_among<kColumns>(begin - first);
  }
};

/// Two ranges of keys, of which a query sees both.
struct KeyRanges {
  int prefix_begin, prefix_end;
  int begin, end;

  __device__ bool sees(int key) const {
    return (key >= begin && key < end) || (key >= prefix_begin && key < prefix_end);
  }
  __device__ KeyRange prefix() const { return {prefix_begin, prefix_end}; }
  __device__ KeyRange own() const { return {begin, end}; }

  /// Returns the columns that either range sees; the prefix may be empty.
  template <int kColumns>
  __device__ uint32_t columns(int first) const {
    return own().columns<kColumns>(first) | prefix().columns<kColumns>(first);
  }
  //| A document's ranges count from the document's first key, those that `from` returns from the tensor's.
  /// Returns the ranges counted from key `first`.
  __device__ KeyRanges from(int first) const {
    return {prefix_begin - first, prefix_end - first, begin - first, end - first};
  }
  //| A tile that begins in the prefix may extend into the window, if there is no gap between the two.
  /// Returns whether the ranges contain all keys from `first` to `last`.
  __device__ bool has_all(int first, int last) const {
    const bool in_prefix = (first >= prefix_begin) & (first < prefix_end);
    return in_prefix ? (last < prefix_end) | ((last < end) & (begin <= prefix_end))
                     : (first >= begin) & (last < end);
  }
};

//| An unlimited side is stored as a number larger than any sequence, so no comparison needs a special case. A
//| range ends where the keys end, or earlier, so no query sees a key past them.
/// A window and a prefix, as passed to a kernel.
struct Band {
  int left, right;  ///< keys visible before and after a query's own; kNoLimit: all
  int sinks, prefix;

  static constexpr int kNoLimit = 1 << 30;  ///< longer than a sequence may be, and no sum with it overflows

  /// Returns whether a query may also see the first keys.
  __device__ bool has_prefix() const { return (sinks | prefix) != 0; }

  /// Returns the keys of `query`, a query of the sequence.
  __device__ KeyRanges ranges(const Sequence& s, int query) const {
    const int own = query + s.keys - s.queries;
    const int begin = max(own - left, 0);
    const int end = right == kNoLimit ? s.keys : min(max(own + right + 1, 0), s.keys);
    return {0, max(min(prefix, s.keys), min(sinks, end)), min(begin, end), end};
  }
};

//| ## The class of a tile
//|
//| A later query sees at least as far to the right, and begins no earlier. So if the first row and the last
//| row see all keys of a tile, so do all rows between them. And the keys that any of the rows sees begin
//| where the range of the first row begins, and end where that of the last row ends.
//|
//| `&` and `|` replace `&&` and `||` here, because lanes classify different tiles and would diverge at a
//| branch.
/// Returns the class of the tile of keys from `first_key` on, by the ranges of the first and of the last row.
__device__ inline TileClass classify_ranges(const KeyRanges& first, const KeyRanges& last, int first_key,
                                            int keys) {
  const int last_key = first_key + keys - 1;
  const bool in_prefix = (first_key < last.prefix_end) & (last_key >= first.prefix_begin);
  const bool in_band = (first.begin < last.end) & (first_key < last.end) & (last_key >= first.begin);
  const bool all = first.has_all(first_key, last_key) & last.has_all(first_key, last_key);
  return !(in_prefix | in_band) ? TileClass::skip : all ? TileClass::full : TileClass::partial;
}

//| ## Documents as a mask
//|
//| Here tiles are cut without regard to documents, and one may hold the end of a document and the beginning
//| of the next. A query's ranges are those within its document, shifted to where the document begins. Its
//| document is found by binary search.
//|
//| **What it costs.** A tile of keys at the boundary is loaded and multiplied for rows of both documents, and
//| a NaN in one of them reaches the other's rows, since 0 times NaN is NaN. Different users' sequences belong
//| in step 2.

//| A row whose document is not known yet finds it alone: a thread, by binary search.
/// Documents, as passed to a kernel.
struct DocumentBounds {
  const int* first_query = nullptr;  // [count + 1]
  const int* first_key = nullptr;    // [count + 1]
  int count = 0;                     ///< 0: none, and the whole sequence counts as one

  /// Returns the document of `query`: the last that begins at or before it, since documents without queries
  /// begin where the next one does.
  __device__ int find(int query) const {
    int begin = 0, end = count - 1;
    while (begin < end) {
      const int middle = (begin + end + 1) / 2;
      if (first_query[middle] <= query)
        begin = middle;
      else
        end = middle - 1;
    }
    return begin;
  }
  __device__ Sequence at(int document) const {
    return {first_query[document], first_query[document + 1] - first_query[document], first_key[document],
            first_key[document + 1] - first_key[document]};
  }
};

//| Without documents, the ranges of a query follow from the band, and with them from its document.
//| Finding one of eight documents takes three dependent loads, some 1000 clocks. So it is done once per tile
//| of queries (`Work::document`), and a row searches only if the tile spans several documents.
/// The keys of queries by window, prefix and documents.
struct Ranges {
  Band band;
  DocumentBounds documents;

  /// Returns the document of `query`, from whose first key its ranges are counted.
  __device__ Sequence document_of(const Sequence& s, int query) const {
    return documents.count == 0 ? Sequence{0, s.queries, 0, s.keys} : documents.at(documents.find(query));
  }
  /// Returns the keys of `query`, which is counted within `document`.
  __device__ KeyRanges row_in(const Sequence& document, int query) const {
    return band.ranges(document, query - document.first_query).from(-document.first_key);
  }
  /// Returns the keys of `query`.
  __device__ KeyRanges row(const Sequence& s, int query) const {
    return row_in(document_of(s, query), query);
  }

  /// Returns the document of all `rows` queries from `first` on, or of those that exist; a document without
  /// queries if they span several. All lanes of a warp.
  __device__ Sequence document_of_all(const Sequence& s, int first, int rows) const {
    const Sequence document = documents.count == 0
                                  ? Sequence{0, s.queries, 0, s.keys}
                                  : documents.at(last_at_most(documents.first_query, documents.count, first));
    return min(first + rows, s.queries) <= document.first_query + document.queries ? document : Sequence{};
  }
};

//| To classify tiles of keys, the deciding warp needs the ranges of the first and the last row. They are
//| computed once. If all rows are in one document, the search is not repeated.
/// The tiles of keys for a tile of queries.
template <int kKeys>
struct RangeTiles {
  KeyRanges first, last;  ///< ranges of its first row and of its last
  Span span;

  /// `document`: that of all rows; without queries if they span several, or if that is unknown.
  __device__ RangeTiles(const Ranges& ranges, const Sequence& s, int first_query, int last_query,
                        const Sequence& document = {}) {
    if (document.queries > 0)
      first = ranges.row_in(document, first_query), last = ranges.row_in(document, last_query);
    else
      first = ranges.row(s, first_query), last = ranges.row(s, last_query);
    if (ranges.documents.count == 0) {
      span = Span::of(last.prefix_end, first.begin, last.end, kKeys);
    } else {  // from the first document's first visible key to the last one's last
      const int begin = first.prefix_begin < first.prefix_end ? first.prefix_begin : first.begin;
      span = Span::of(0, begin, max(last.prefix_end, last.end), kKeys);
    }
  }

  __device__ TileClass classify(int first_key) const {
    // Rows of more than one document: no key is seen by all of them.
    if (first.prefix_begin != last.prefix_begin) return TileClass::partial;
    return classify_ranges(first, last, first_key, kKeys);
  }
};

//| ## The policy
//|
//| A sequence is a batch entry, its first row is row 0, and tiles of queries go in chapter 5's order.
//|
//| All others wait for the deciding warp, and a division by a number that the host has not prepared takes it
//| some 200 clocks. So the host prepares the divisors of the order, too. The last section may have fewer
//| heads than the others.
/// Sequences that are batch entries: their rows, and the order of their tiles.
struct InBatch {
  TileOrder order;
  device::Divisor tiles_of_section, heads_of_section;
  device::Divisor heads_of_last;  ///< heads in the last section
  int last_section;

  InBatch() = default;
  /// Called on the host.
  InBatch(const TileOrder& order)
      : order(order),
        tiles_of_section(order.tiles_of_head * order.heads_of_section),
        heads_of_section(order.heads_of_section),
        heads_of_last((order.batch * order.heads - 1) % order.heads_of_section + 1),
        last_section((order.batch * order.heads - 1) / order.heads_of_section) {}

  //| Sections come one after the other. In a section all heads have their last tile of queries first, then
  //| the one before, and so on.
  /// `tile_at` without a division.
  __device__ WorkTile tile(int index) const {
    if (index >= order.tiles) return {{0, 0}, -1};
    if (!order.longest_first) return tile_at(order, index);
    const int section = index / tiles_of_section, place = index % tiles_of_section;
    const bool last = section == last_section;
    const int row = last ? place / heads_of_last : place / heads_of_section;
    const int head =
        section * heads_of_section + place - row * (last ? int(heads_of_last) : int(heads_of_section));
    return {{head % order.heads, head / order.heads}, order.tiles_of_head - 1 - row};
  }

  /// Returns how many tiles of queries there are.
  __device__ int count(const Problem&) const { return order.tiles; }

  template <int kRows>
  __device__ Work work(const Problem& problem, int index) const {
    const WorkTile tile = this->tile(index);
    const MapRows rows{0, 0, tile.head.batch};
    return {tile.head, {0, problem.seqlen_q, 0, problem.seqlen_k}, rows, rows, tile.query_tile * kRows, 0, 0};
  }
};

//| Most policies leave scores and probabilities unchanged. The kernel then has no code that would change
//| them.
/// Leaves scores unchanged.
struct Unchanged {
  static constexpr ScoreExtras kExtras = {};
};

//| Steps 2 and 4 answer in the same way. There may be documents, so the three functions for them are here.
/// The answers of a policy based on ranges.
struct InRanges {
  Ranges ranges;

  template <int kKeys>
  __device__ RangeTiles<kKeys> tiles(const Work& work, int last_query) const {
    return {ranges, work.sequence, work.first_query, last_query, work.document};
  }
  __device__ KeyRanges row(const Work& work, int query) const { return ranges.row(work.sequence, query); }
  __device__ KeyRanges row_in(const Sequence& document, int query) const {
    return ranges.row_in(document, query);
  }
  __device__ bool has_prefix() const { return ranges.band.has_prefix(); }
  __device__ Sequence document_of_all(const Work& work, int rows) const {
    return ranges.document_of_all(work.sequence, work.first_query, rows);
  }
};

/// Step 3.
struct ByRanges : InBatch, InRanges {
  static constexpr Extras kExtras = {.documents = true};
  Unchanged score;
};

}  // namespace flashbook::masks

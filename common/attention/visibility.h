/// \file
/// Which keys a query may see: one value that the oracle, kernels, the cost model, tests and figures query.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace flashbook {

struct Shape;

/// A band of keys around a query's own, aligned to the bottom right: query i of S_q sees keys
/// i + S_k - S_q - left ... i + S_k - S_q + right, FlashAttention's window_size. -1: no limit on that side.
struct Window {
  int left = -1;
  int right = -1;
  int sinks = 0;  ///< the first keys, which every query sees whatever `left` says, but none beyond `right`

  bool operator==(const Window&) const = default;
};

/// Sequences packed one after another (FlashAttention's cu_seqlens): a query sees keys of its document only,
/// and windows and prefixes count within it. A document may have no queries or no keys. None: one document.
struct Documents {
  std::vector<int> first_query = {};  ///< [documents + 1], ascending from 0 to seqlen_q
  std::vector<int> first_key = {};    ///< [documents + 1], ascending from 0 to seqlen_k

  bool operator==(const Documents&) const = default;
};

/// Intervals of queries that must not see a key (FlashMask's startend_row_indices, arXiv 2410.01359), begin
/// included and end not: below the diagonal LTS ... LTE, above it UTS ... UTE. By key
/// - 1 bound: LTS; LTE is seqlen_q.
/// - 2 bounds under a causal window: LTS, LTE.
/// - 2 bounds otherwise: LTS, UTE; LTE is seqlen_q and UTS is 0.
/// - 4 bounds: LTS, LTE, UTS, UTE.
struct Columns {
  int heads = 1;                  ///< 1, or kv_heads: what a key head's queries share
  int bounds = 0;                 ///< 1, 2 or 4; 0: no intervals
  std::vector<int> queries = {};  ///< [batch, heads, seqlen_k, bounds]

  bool operator==(const Columns&) const = default;
};

/// Blocks of pairs that are visible; pairs in other blocks are not. None listed: no restriction.
struct Blocks {
  int queries = 0;  ///< a block's rows, 0: no restriction
  int keys = 0;     ///< a block's columns
  std::vector<int> first =
      {};  ///< [rows of blocks + 1]: a row's blocks are listed from here, shared by all heads
  std::vector<int> key_blocks = {};  ///< which blocks of keys, ascending in a row

  bool operator==(const Blocks&) const = default;
};

/// A mask pair by pair.
struct Dense {
  int heads = 1;                            ///< 1, or heads
  std::vector<unsigned char> visible = {};  ///< [batch, heads, seqlen_q, seqlen_k], 0: hidden
  bool elsewhere = false;  ///< the caller has them in device memory, and `visible` stays empty

  bool empty() const { return visible.empty() && !elsewhere; }  ///< there is no such mask
  bool operator==(const Dense&) const = default;
};

/// What a query may see. Every part that is given restricts; a pair is visible if all parts allow it. The
/// default is full attention.
struct Visibility {
  Window window = {};
  int prefix = 0;                 ///< the first keys, which every query sees whatever the window says
  std::vector<int> lengths = {};  ///< [batch], how many of the seqlen_k keys each sequence has; windows
                                  ///< are aligned to its last key. Empty: all
  Documents documents = {};
  Columns columns = {};
  Blocks blocks = {};
  Dense dense = {};

  static Visibility causal() { return {.window = {.right = 0}}; }
  static Visibility causal_if(bool causal) { return causal ? Visibility::causal() : Visibility{}; }

  bool is_full() const { return window == Window{} && has_only_window(); }
  bool is_causal() const { return window == Window{.right = 0} && has_only_window(); }

  bool operator==(const Visibility&) const = default;

 private:
  bool has_only_window() const {
    return prefix == 0 && lengths.empty() && documents.first_query.empty() && columns.bounds == 0 &&
           blocks.queries == 0 && dense.empty();
  }
};

/// A rectangle of pairs. It may reach beyond the last query; keys beyond the last are not visible.
struct ScoreTile {
  int first_query, queries;
  int first_key, keys;
};

/// What a kernel must do with a tile.
enum class TileClass {
  skip,     ///< no pair is visible
  partial,  ///< every pair must be asked for. Some tiles that could be skipped or are full are called partial
  full      ///< every pair is visible
};

/// Keys begin ... end - 1.
struct KeyRange {
  int begin, end;

  bool operator==(const KeyRange&) const = default;
};

/// Whether `query` of `head` (a query head) sees `key`.
bool sees(const Shape& shape, int batch, int head, int query, int key);

/// The key at the query's own place, aligned to the bottom right of its document: query + seqlen_k - seqlen_q
/// if there is one. Negative, or beyond the last key, if there is no such key.
int64_t own_key(const Shape& shape, int batch, int query);

/// The class of a tile. Exact for windows, prefixes, lengths and documents, and for any single pair.
TileClass classify(const Shape& shape, int batch, int head, const ScoreTile& tile);

/// A range that has every key that any of the queries sees: where a kernel's loop over keys begins and ends.
/// {0, 0} if they see none.
KeyRange keys_seen(const Shape& shape, int batch, int head, int first_query, int queries);

/// Visible (query, key) pairs of one head. A square causal mask counts N * N / 2, as the papers do (the
/// diagonal's other half is left out); everything else counts exactly.
double visible_pairs(const Shape& shape, int batch, int head);

/// Visible pairs of all heads.
double visible_pairs(const Shape& shape);

/// Throws InputError if the parts do not fit the shape's lengths and heads.
void validate_visibility(const Shape& shape);

/// "full", "causal", "window of 128 keys before and 0 after, 4 sinks", "causal in 3 documents": for a report.
std::string describe(const Visibility& visibility);

}  // namespace flashbook

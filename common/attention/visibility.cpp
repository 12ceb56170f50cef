#include "common/attention/visibility.h"

#include <algorithm>
#include <span>
#include <sstream>

#include "common/attention/error.h"
#include "common/attention/shape.h"
#include "common/attention/slopes.h"

namespace flashbook {
namespace {

/// A document of a sequence: what windows and prefixes count within.
struct Document {
  int64_t first_query, queries;
  int64_t first_key, keys;

  int64_t own_key(int64_t query) const { return first_key + query - first_query + keys - queries; }
};

int documents(const Shape& shape) {
  return std::max(1, int(shape.visibility.documents.first_query.size()) - 1);
}

Document document(const Shape& shape, int batch, int index) {
  const Visibility& v = shape.visibility;
  if (v.documents.first_query.empty()) return {0, shape.seqlen_q, 0, shape.length_of(batch)};
  const int query = v.documents.first_query[index], key = v.documents.first_key[index];
  return {query, v.documents.first_query[index + 1] - query, key, v.documents.first_key[index + 1] - key};
}

int document_of(const Shape& shape, int query) {
  const std::vector<int>& first = shape.visibility.documents.first_query;
  if (first.empty()) return 0;
  return int(std::ranges::upper_bound(first, query) - first.begin()) - 1;
}

/// The keys that a query sees by window and prefix: 0 ... head - 1 and begin ... end - 1, both within its
/// document's keys. All three grow with the query.
struct RowKeys {
  int64_t head, begin, end;

  bool has_all(int64_t first, int64_t last) const {
    return last < head || (last < end && (begin <= first || begin <= head));
  }
};

RowKeys row_keys(const Visibility& v, const Document& doc, int64_t query) {
  const int64_t own = doc.own_key(query) - doc.first_key;
  const int64_t begin = v.window.left < 0 ? 0 : std::clamp<int64_t>(own - v.window.left, 0, doc.keys);
  const int64_t end =
      v.window.right < 0 ? doc.keys : std::clamp<int64_t>(own + v.window.right + 1, 0, doc.keys);
  const int64_t head =
      std::max(std::min<int64_t>(v.prefix, doc.keys), std::min<int64_t>(v.window.sinks, end));
  return {head, begin, end};
}

/// The class of a tile with any visible pairs, and with none but visible ones.
TileClass class_of(bool any, bool all) {
  return all ? TileClass::full : any ? TileClass::partial : TileClass::skip;
}

/// Calls body(document, first, last) for every document that has queries here, with what the first and the
/// last of these see: a later query sees the prefix at least as far, so these two say all.
template <typename Body>
void for_each_document(const Shape& shape, int batch, int first_query, int64_t last_query, Body body) {
  for (int i = document_of(shape, first_query); i < documents(shape); ++i) {
    const Document doc = document(shape, batch, i);
    if (doc.first_query > last_query) break;
    if (doc.queries == 0) continue;
    body(doc, row_keys(shape.visibility, doc, std::max<int64_t>(first_query, doc.first_query)),
         row_keys(shape.visibility, doc, std::min(last_query, doc.first_query + doc.queries - 1)));
  }
}

/// By window, prefix, lengths and documents. The tile's last query exists.
TileClass classify_window(const Shape& shape, int batch, const ScoreTile& tile) {
  const int64_t last_query = tile.first_query + int64_t(tile.queries) - 1;
  const int64_t first_key = tile.first_key, last_key = first_key + tile.keys - 1;
  bool any = false, all = true;
  for_each_document(shape, batch, tile.first_query, last_query,
                    [&](const Document& doc, const RowKeys& first, const RowKeys& last) {
                      const int64_t from = first_key - doc.first_key, to = last_key - doc.first_key;
                      const auto meets = [&](int64_t begin, int64_t end) {
                        return begin < end && std::max(begin, from) <= std::min(end - 1, to);
                      };
                      any |= meets(0, last.head) || meets(first.begin, last.end);
                      all &= from >= 0 && first.has_all(from, to) && last.has_all(from, to);
                    });
  return class_of(any, all);
}

/// The queries that must not see a key: two intervals, ends not included.
struct Hidden {
  int lower_begin, lower_end, upper_begin, upper_end;

  bool has_all(int first, int last) const {
    const auto in = [](int query, int begin, int end) { return begin <= query && query < end; };
    if (in(first, lower_begin, lower_end))
      return last < lower_end || (in(lower_end, upper_begin, upper_end) && last < upper_end);
    if (in(first, upper_begin, upper_end))
      return last < upper_end || (in(upper_end, lower_begin, lower_end) && last < lower_end);
    return false;
  }
  bool has_any(int first, int last) const {
    return std::max(lower_begin, first) < std::min(lower_end, last + 1) ||
           std::max(upper_begin, first) < std::min(upper_end, last + 1);
  }
};

Hidden hidden(const Shape& shape, int batch, int head, int key) {
  const Columns& c = shape.visibility.columns;
  const int64_t column_head = c.heads == 1 ? 0 : head / (shape.heads / shape.kv_heads);
  const int* const bound =
      &c.queries[((int64_t(batch) * c.heads + column_head) * shape.seqlen_k + key) * c.bounds];
  const int n = shape.seqlen_q;
  if (c.bounds == 1) return {bound[0], n, 0, 0};
  if (c.bounds == 4) return {bound[0], bound[1], bound[2], bound[3]};
  if (shape.visibility.window.right == 0) return {bound[0], bound[1], 0, 0};
  return {bound[0], n, 0, bound[1]};
}

TileClass classify_columns(const Shape& shape, int batch, int head, const ScoreTile& tile) {
  if (shape.visibility.columns.bounds == 0) return TileClass::full;
  const int last_query = tile.first_query + tile.queries - 1;
  const int end = int(std::min<int64_t>(shape.seqlen_k, int64_t(tile.first_key) + tile.keys));
  bool any = false, all = true;
  for (int key = tile.first_key; key < end; ++key) {
    const Hidden queries = hidden(shape, batch, head, key);
    any |= !queries.has_all(tile.first_query, last_query);
    all &= !queries.has_any(tile.first_query, last_query);
  }
  return class_of(any, all);
}

TileClass classify_blocks(const Shape& shape, const ScoreTile& tile) {
  const Blocks& b = shape.visibility.blocks;
  if (b.queries == 0) return TileClass::full;
  const int last_query = tile.first_query + tile.queries - 1;
  const int last_key = int(std::min<int64_t>(shape.seqlen_k, int64_t(tile.first_key) + tile.keys) - 1);
  const int first_block = tile.first_key / b.keys, last_block = last_key / b.keys;
  bool any = false, all = true;
  for (int row = tile.first_query / b.queries; row <= last_query / b.queries; ++row) {
    const auto begin = b.key_blocks.begin() + b.first[row], end = b.key_blocks.begin() + b.first[row + 1];
    const auto listed = std::upper_bound(begin, end, last_block) - std::lower_bound(begin, end, first_block);
    any |= listed > 0;
    all &= listed == last_block - first_block + 1;
  }
  return class_of(any, all);
}

TileClass classify_dense(const Shape& shape, int batch, int head, const ScoreTile& tile) {
  const Dense& d = shape.visibility.dense;
  if (d.visible.empty()) return TileClass::full;
  const int64_t first_row =
      (int64_t(batch) * d.heads + (d.heads == 1 ? 0 : head)) * shape.seqlen_q + tile.first_query;
  const int keys = std::min(tile.keys, shape.seqlen_k - tile.first_key);
  bool any = false, all = true;
  for (int64_t row = first_row; row < first_row + tile.queries && (!any || all); ++row)
    for (const unsigned char pair : std::span(d.visible).subspan(row * shape.seqlen_k + tile.first_key, keys))
      any |= pair != 0, all &= pair != 0;
  return class_of(any, all);
}

/// Counts by halving what is partial until it is not.
double count(const Shape& shape, int batch, int head, const ScoreTile& tile) {
  const TileClass kind = classify(shape, batch, head, tile);
  if (kind == TileClass::skip) return 0;
  if (kind == TileClass::full) return double(tile.queries) * tile.keys;
  ScoreTile one = tile, other = tile;
  if (tile.queries >= tile.keys) {
    one.queries = tile.queries / 2;
    other.first_query += one.queries, other.queries -= one.queries;
  } else {
    one.keys = tile.keys / 2;
    other.first_key += one.keys, other.keys -= one.keys;
  }
  return count(shape, batch, head, one) + count(shape, batch, head, other);
}

bool differs_by_head(const Visibility& v) { return v.columns.bounds != 0 || v.dense.heads > 1; }
bool differs_by_batch(const Visibility& v) {
  return !v.lengths.empty() || v.columns.bounds != 0 || !v.dense.empty();
}

}  // namespace

bool sees(const Shape& shape, int batch, int head, int query, int key) {
  return classify(shape, batch, head, {query, 1, key, 1}) == TileClass::full;
}

int64_t own_key(const Shape& shape, int batch, int query) {
  const Document doc = document(shape, batch, document_of(shape, query));
  return doc.own_key(query);
}

int64_t sequences_of(const Shape& shape) {
  return shape.visibility.documents.first_query.empty() ? shape.batch : documents(shape);
}

float slope_of(const Shape& shape, int batch, int head, int query) {
  const std::vector<float>& slopes = shape.score.alibi;
  if (slopes.empty()) return 0;
  if (slopes.size() == std::size_t(shape.heads)) return slopes[head];
  const bool packed = !shape.visibility.documents.first_query.empty();
  return slopes[std::size_t(packed ? document_of(shape, query) : batch) * shape.heads + head];
}

TileClass classify(const Shape& shape, int batch, int head, const ScoreTile& given) {
  ScoreTile tile = given;
  tile.queries = int(std::min<int64_t>(tile.queries, int64_t(shape.seqlen_q) - tile.first_query));
  if (tile.queries <= 0 || tile.keys <= 0 || tile.first_key >= shape.seqlen_k) return TileClass::skip;
  // All rules restrict: the class is the least of theirs, the cheapest asked first.
  TileClass found = classify_window(shape, batch, tile);
  if (found != TileClass::skip) found = std::min(found, classify_blocks(shape, tile));
  if (found != TileClass::skip) found = std::min(found, classify_columns(shape, batch, head, tile));
  if (found != TileClass::skip) found = std::min(found, classify_dense(shape, batch, head, tile));
  return found;
}

KeyRange keys_seen(const Shape& shape, int batch, int, int first_query, int queries) {
  const int last_query = int(std::min<int64_t>(shape.seqlen_q, int64_t(first_query) + queries) - 1);
  int64_t begin = shape.seqlen_k, end = 0;
  for_each_document(shape, batch, first_query, last_query,
                    [&](const Document& doc, const RowKeys& first, const RowKeys& last) {
                      const int64_t from = last.head > 0 ? 0 : first.begin,
                                    to = std::max(last.head, last.end);
                      if (from >= to) return;
                      begin = std::min(begin, doc.first_key + from);
                      end = std::max(end, doc.first_key + to);
                    });
  const Blocks& b = shape.visibility.blocks;
  if (b.queries != 0) {
    int64_t first_block = shape.seqlen_k, end_block = 0;
    for (int row = first_query / b.queries; row <= last_query / b.queries; ++row) {
      if (b.first[row] == b.first[row + 1]) continue;
      first_block = std::min<int64_t>(first_block, b.key_blocks[b.first[row]]);
      end_block = std::max<int64_t>(end_block, b.key_blocks[b.first[row + 1] - 1] + 1);
    }
    begin = std::max(begin, first_block * b.keys);
    end = std::min(end, end_block * b.keys);
  }
  return begin < end ? KeyRange{int(begin), int(end)} : KeyRange{0, 0};
}

double visible_pairs(const Shape& shape, int batch, int head) {
  const double queries = shape.seqlen_q, keys = shape.seqlen_k;
  if (shape.visibility.is_full()) return queries * keys;
  if (shape.causal()) {
    if (queries == keys) return queries * keys / 2;
    // The last query sees every key and each one before it sees one less, down to none.
    const double seeing = std::min(queries, keys);
    const double least = keys - seeing + 1;
    return seeing * (least + keys) / 2;
  }
  return count(shape, batch, head, {0, shape.seqlen_q, 0, shape.seqlen_k});
}

double visible_pairs(const Shape& shape) {
  const int batches = differs_by_batch(shape.visibility) ? shape.batch : 1;
  const int heads = differs_by_head(shape.visibility) ? shape.heads : 1;
  double pairs = 0;
  for (int batch = 0; batch < batches; ++batch)
    for (int head = 0; head < heads; ++head) pairs += visible_pairs(shape, batch, head);
  return pairs * (shape.batch / batches) * (shape.heads / heads);
}

namespace {

template <typename... Parts>
void require(bool right, const Parts&... message) {
  if (!right) throw InputError(message...);
}

void require_count(const char* name, std::size_t count, int64_t wanted, const char* what) {
  require(int64_t(count) == wanted, name, " has ", count, " numbers: give ", wanted, ", ", what);
}

void require_range(const char* name, const std::vector<int>& values, int64_t largest, const char* what) {
  for (const int value : values)
    require(value >= 0 && value <= largest, name, " has ", value, ": give numbers from 0 to ", largest, ", ",
            what);
}

void validate_first(const char* name, const std::vector<int>& first, int end, const char* what) {
  require(first.front() == 0 && first.back() == end && std::ranges::is_sorted(first), name,
          " does not ascend from 0 to ", end, ": give the sums of the ", what);
}

}  // namespace

void validate_visibility(const Shape& shape) {
  const Visibility& v = shape.visibility;
  require(v.window.left >= -1 && v.window.right >= -1,
          "a window's side is below -1: give a number of keys, or -1 for all");
  require(v.window.sinks >= 0 && v.prefix >= 0, "sinks or a prefix are below 0: give a number of keys");
  if (!v.lengths.empty()) {
    require_count("lengths", v.lengths.size(), shape.batch, "one a sequence");
    require_range("lengths", v.lengths, shape.seqlen_k, "the keys there are");
    require(v.documents.first_query.empty(),
            "there are documents and lengths: give documents of one sequence, or lengths of a batch");
  }
  if (const Documents& d = v.documents; !d.first_query.empty() || !d.first_key.empty()) {
    require(d.first_query.size() >= 2, "first_query has no document: give its first and its end");
    require_count("first_key", d.first_key.size(), int64_t(d.first_query.size()), "as many as first_query");
    validate_first("first_query", d.first_query, shape.seqlen_q, "documents' queries");
    validate_first("first_key", d.first_key, shape.seqlen_k, "documents' keys");
  }
  if (const Columns& c = v.columns; c.bounds != 0) {
    require(c.bounds == 1 || c.bounds == 2 || c.bounds == 4, "a key has ", c.bounds,
            " bounds: give 1, 2 or 4");
    require(c.heads == 1 || c.heads == shape.kv_heads, "intervals are of ", c.heads, " heads: give 1 or ",
            shape.kv_heads, ", the key heads");
    require_count("intervals", c.queries.size(), int64_t(shape.batch) * c.heads * shape.seqlen_k * c.bounds,
                  "batch * heads * seqlen_k * bounds");
    require_range("intervals", c.queries, shape.seqlen_q, "the queries there are");
  }
  if (const Dense& d = v.dense; !d.empty()) {
    require(d.heads == 1 || d.heads == shape.heads, "the mask is of ", d.heads, " heads: give 1 or ",
            shape.heads);
    if (!d.elsewhere)
      require_count("pairs of the mask", d.visible.size(),
                    int64_t(shape.batch) * d.heads * shape.seqlen_q * shape.seqlen_k,
                    "batch * heads * seqlen_q * seqlen_k");
  }
  if (const Blocks& b = v.blocks; b.queries != 0) {
    require(b.queries > 0 && b.keys > 0, "a block has no pairs: give at least 1 query and 1 key");
    const int64_t rows = ceil_div(int64_t(shape.seqlen_q), b.queries);
    const int64_t columns = ceil_div(int64_t(shape.seqlen_k), b.keys);
    require_count("first blocks", b.first.size(), rows + 1, "one a row of blocks, and the end");
    validate_first("first blocks", b.first, int(b.key_blocks.size()), "rows' blocks");
    require_range("key_blocks", b.key_blocks, columns - 1, "the blocks of keys there are");
    for (int64_t row = 0; row < rows; ++row)
      for (int i = b.first[row] + 1; i < b.first[row + 1]; ++i)
        require(b.key_blocks[i - 1] < b.key_blocks[i], "key_blocks do not ascend in row ", row,
                ": sort them, each once");
  }
}

std::string describe(const Visibility& v) {
  const auto keys = [](int count) { return count < 0 ? "all" : std::to_string(count); };
  std::ostringstream text;
  if (v.window == Window{})
    text << "full";
  else if (v.window == Window{.right = 0})
    text << "causal";
  else
    text << "window of " << keys(v.window.left) << " keys before and " << keys(v.window.right) << " after";
  if (v.window.sinks > 0) text << ", " << v.window.sinks << " sinks";
  if (v.prefix > 0) text << ", a prefix of " << v.prefix;
  if (!v.lengths.empty()) text << ", lengths by sequence";
  if (!v.documents.first_query.empty()) text << ", " << v.documents.first_query.size() - 1 << " documents";
  if (v.columns.bounds > 0) text << ", intervals by key";
  if (v.blocks.queries > 0) text << ", listed blocks of " << v.blocks.queries << " x " << v.blocks.keys;
  if (!v.dense.empty()) text << ", a mask of pairs";
  return text.str();
}

}  // namespace flashbook

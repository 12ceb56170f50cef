#include "common/features/window/ranges.h"

#include "common/features/helpers.h"

namespace flashbook::features {
namespace {

/// The keys that a query sees under the window and the prefix: 0 ... head - 1 and begin ... end - 1, both
/// within its sequence's keys. All three numbers grow with the query.
struct RowKeys {
  int64_t head, begin, end;

  bool has_all(int64_t first, int64_t last) const {
    return last < head || (last < end && (begin <= first || begin <= head));
  }
};

RowKeys row_keys(const Visibility& v, const Segment& of, int64_t query) {
  const int64_t own = of.own_key(query) - of.first_key;
  const int64_t begin = v.window.left < 0 ? 0 : std::clamp<int64_t>(own - v.window.left, 0, of.keys);
  const int64_t end =
      v.window.right < 0 ? of.keys : std::clamp<int64_t>(own + v.window.right + 1, 0, of.keys);
  const int64_t head = std::max(std::min<int64_t>(v.prefix, of.keys), std::min<int64_t>(v.window.sinks, end));
  return {head, begin, end};
}

/// Calls body(segment, first, last) for every segment with queries in this range, with the keys of the first
/// and the last of these. A later query sees at least as much of the prefix, so these two suffice.
template <typename Body>
void for_each_segment(const Spec& spec, int batch, int first_query, int64_t last_query, Body body) {
  for (int i = document_of(spec, first_query); i < document_count(spec); ++i) {
    const Segment of = segment(spec, batch, i);
    if (of.first_query > last_query) break;
    if (of.queries == 0) continue;
    body(of, row_keys(spec.visibility, of, std::max<int64_t>(first_query, of.first_query)),
         row_keys(spec.visibility, of, std::min(last_query, of.first_query + of.queries - 1)));
  }
}

/// Windows and prefixes are relative to the query's document, or to its sequence.
bool is_out_of_range(const Spec& spec, int batch, int, int query, int key) {
  const auto& [left, right, sinks] = spec.visibility.window;
  int queries = spec.seqlen_q, keys = spec.length_of(batch), i = query, j = key;
  const Documents& d = spec.visibility.documents;
  for (std::size_t n = 0; n + 1 < d.first_query.size(); ++n) {
    if (query < d.first_query[n] || query >= d.first_query[n + 1]) continue;
    queries = d.first_query[n + 1] - d.first_query[n], keys = d.first_key[n + 1] - d.first_key[n];
    i -= d.first_query[n], j -= d.first_key[n];
  }
  const int own = i + keys - queries;
  const bool before_end = right < 0 || j <= own + right;
  const bool after_begin = left < 0 || j >= own - left || j < sinks;
  return j < 0 || j >= keys || (!(before_end && after_begin) && j >= spec.visibility.prefix);
}

TileClass classify_ranges(const Spec& spec, int batch, int, const ScoreTile& tile) {
  const int64_t last_query = tile.first_query + int64_t(tile.queries) - 1;
  const int64_t first_key = tile.first_key, last_key = first_key + tile.keys - 1;
  bool any = false, all = true;
  for_each_segment(spec, batch, tile.first_query, last_query,
                   [&](const Segment& of, const RowKeys& first, const RowKeys& last) {
                     const int64_t from = first_key - of.first_key, to = last_key - of.first_key;
                     const auto meets = [&](int64_t begin, int64_t end) {
                       return begin < end && std::max(begin, from) <= std::min(end - 1, to);
                     };
                     any |= meets(0, last.head) || meets(first.begin, last.end);
                     all &= from >= 0 && first.has_all(from, to) && last.has_all(from, to);
                   });
  return class_of(any, all);
}

KeyRange keys_in_ranges(const Spec& spec, int batch, int first_query, int last_query) {
  int64_t begin = spec.seqlen_k, end = 0;
  for_each_segment(spec, batch, first_query, last_query,
                   [&](const Segment& of, const RowKeys& first, const RowKeys& last) {
                     const int64_t from = last.head > 0 ? 0 : first.begin, to = std::max(last.head, last.end);
                     if (from >= to) return;
                     begin = std::min(begin, of.first_key + from);
                     end = std::max(end, of.first_key + to);
                   });
  return {int(begin), int(end)};
}

}  // namespace

const Mask kRanges = {
    .hides = is_out_of_range, .classify = classify_ranges, .keys_seen = keys_in_ranges, .is_exact = true};

}  // namespace flashbook::features

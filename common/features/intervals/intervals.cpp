#include "common/features/intervals/intervals.h"

#include "common/features/helpers.h"
#include "common/features/intervals/intervals_c.h"

namespace flashbook::features {
namespace {

/// The queries that must not see a key: two intervals, each without its end.
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

const int* bounds_of_key(const Spec& spec, int batch, int head, int key) {
  const Columns& c = spec.visibility.columns;
  const int64_t column_head = c.heads == 1 ? 0 : head / (spec.heads / spec.kv_heads);
  return &c.queries[std::size_t(((int64_t(batch) * c.heads + column_head) * spec.seqlen_k + key) * c.bounds)];
}

Hidden hidden(const Spec& spec, int batch, int head, int key) {
  const int* const bound = bounds_of_key(spec, batch, head, key);
  const int bounds = spec.visibility.columns.bounds, n = spec.seqlen_q;
  if (bounds == 1) return {bound[0], n, 0, 0};
  if (bounds == 4) return {bound[0], bound[1], bound[2], bound[3]};
  if (spec.visibility.window.right == 0) return {bound[0], bound[1], 0, 0};
  return {bound[0], n, 0, bound[1]};
}

}  // namespace

constexpr Mask kIntervals = {
    .hides =
        [](const Spec& spec, int batch, int head, int query, int key) {
          const int* const bound = bounds_of_key(spec, batch, head, key);
          const int count = spec.visibility.columns.bounds;
          const bool is_causal = spec.visibility.window.right == 0;
          const int lts = bound[0];
          const int lte = count == 4 || (count == 2 && is_causal) ? bound[1] : spec.seqlen_q;
          const int uts = count == 4 ? bound[2] : 0;
          const int ute = count == 4 ? bound[3] : count == 2 && !is_causal ? bound[1] : 0;
          return (lts <= query && query < lte) || (uts <= query && query < ute);
        },
    .classify =
        [](const Spec& spec, int batch, int head, const ScoreTile& tile) {
          const int last_query = tile.first_query + tile.queries - 1;
          const int end = int(std::min<int64_t>(spec.seqlen_k, int64_t(tile.first_key) + tile.keys));
          bool any = false, all = true;
          for (int key = tile.first_key; key < end; ++key) {
            const Hidden queries = hidden(spec, batch, head, key);
            any |= !queries.has_all(tile.first_query, last_query);
            all &= !queries.has_any(tile.first_query, last_query);
          }
          return class_of(any, all);
        },
};

const Definition intervals = {
    .plural = "interval masks",
    .is_in = [](const Spec& spec) { return spec.visibility.columns.bounds != 0; },
    .give =
        [](Spec& spec, std::mt19937& random) {
          Columns columns{.heads = one_in(random, 2) ? 1 : spec.kv_heads,
                          .bounds = 1 << between(random, 0, 2)};
          columns.queries.resize(std::size_t(spec.batch * columns.heads * spec.seqlen_k * columns.bounds));
          for (int& bound : columns.queries) bound = between(random, 0, spec.seqlen_q);
          spec.visibility.columns = std::move(columns);
        },
    .validate =
        [](const Spec& spec) {
          const Columns& c = spec.visibility.columns;
          require(c.bounds == 1 || c.bounds == 2 || c.bounds == 4, "a key has ", c.bounds,
                  " bounds: give 1, 2 or 4");
          require(c.heads == 1 || c.heads == spec.kv_heads, "intervals are for ", c.heads,
                  " heads: give 1 or ", spec.kv_heads, ", the number of key heads");
          require_count("intervals", c.queries.size(),
                        int64_t(spec.batch) * c.heads * spec.seqlen_k * c.bounds,
                        "batch * heads * seqlen_k * bounds");
          require_range("intervals", c.queries, spec.seqlen_q, "the number of queries");
        },
    .describe = [](const Spec&) { return std::string("intervals by key"); },
    .tables = [](const Spec& spec) -> Tables {
      return {table(TableId::columns, "columns", spec.visibility.columns.queries)};
    },
    .mask = &kIntervals,
    .by_head = true,
    .by_batch = true,
    .in_c = c_struct<FlashbookIntervals, FLASHBOOK_INTERVALS>(
        [](const auto& from, Spec& to) {
          to.visibility.columns = {from.heads, from.bounds,
                                   on_device<int>(double(to.batch) * from.heads * to.seqlen_k * from.bounds)};
        },
        {{"intervals", place_of(TableId::columns)}}),
};

}  // namespace flashbook::features

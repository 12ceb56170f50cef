#include "common/features/pages/pages.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/attention/random.h"
#include "common/features/helpers.h"
#include "common/features/pages/pages_c.h"

namespace flashbook {
namespace {

/// Calls body(paged, dense) for every row in use, with its index among the rows of all pages and among those
/// of all sequences.
template <typename Body>
void for_each_row(const Spec& spec, Body body) {
  const int64_t page_rows = spec.paging.rows, pages = spec.pages_of_sequence();
  for (int64_t batch = 0; batch < spec.batch; ++batch)
    for (int64_t head = 0; head < spec.kv_heads; ++head)
      for (int64_t key = 0; key < spec.length_of(int(batch)); ++key) {
        const int64_t page = spec.paging.table[batch * pages + key / page_rows];
        body((page * spec.kv_heads + head) * page_rows + key % page_rows,
             (batch * spec.kv_heads + head) * spec.seqlen_k + key);
      }
}

/// Copies K and V to the layout of `to`; `ends` gives source and destination of each row in use.
template <typename Ends>
Inputs moved(const Spec& spec, const Inputs& inputs, const Spec& to, Ends ends) {
  Inputs result = inputs;
  for (TensorId id : {TensorId::k, TensorId::v}) {
    if (!is_stored(spec, id)) continue;
    const int64_t columns = columns_of(spec, id);
    result[id].assign(elements_of(to, id), NAN);
    for_each_row(spec, [&](int64_t paged, int64_t dense) {
      const auto [source, target] = ends(paged, dense);
      std::copy_n(&inputs[id][source * columns], columns, &result[id][target * columns]);
    });
  }
  return result;
}

}  // namespace

Spec without_pages(const Spec& spec) {
  Spec dense = spec;
  dense.paging = {};
  dense.layout.k = dense.layout.v = {};  // these strides described pages
  return dense;
}

Paging random_pages(const Sizes& sizes, int rows, int shared, uint64_t seed) {
  const int of_sequence = int(ceil_div(int64_t(sizes.seqlen_k), rows));
  const int common = std::min(shared / rows, of_sequence), own = of_sequence - common;
  Paging paging = {.rows = rows, .pages = common + sizes.batch * own, .table = {}, .shared = shared};
  std::vector<int> order(paging.pages);
  std::iota(order.begin(), order.end(), 0);
  for (int i = paging.pages - 1; i > 0; --i)
    std::swap(order[i], order[random_bits(seed, i) % uint64_t(i + 1)]);
  for (int batch = 0; batch < sizes.batch; ++batch) {
    const auto first_own = order.begin() + common + int64_t(batch) * own;
    paging.table.insert(paging.table.end(), order.begin(), order.begin() + common);
    paging.table.insert(paging.table.end(), first_own, first_own + own);
  }
  return paging;
}

Inputs gather_pages(const Spec& spec, const Inputs& inputs) {
  return moved(spec, inputs, without_pages(spec),
               [](int64_t paged, int64_t dense) { return std::pair(paged, dense); });
}

Inputs scatter_pages(const Spec& spec, const Inputs& inputs) {
  return moved(spec, inputs, spec, [](int64_t paged, int64_t dense) { return std::pair(dense, paged); });
}

namespace features {
namespace {

void validate_pages(const Spec& spec) {
  const Paging& paging = spec.paging;
  require(paging.rows >= 0 && paging.pages >= 1, "there are ", paging.pages, " pages of ", paging.rows,
          " rows: give at least 1 of each");
  require(spec.dtype != DType::e4m3,
          "queries in e4m3 do not support pages: give f16 or bf16; the cache may be e4m3");
  const int64_t of_sequence = spec.pages_of_sequence();
  require(int64_t(paging.table.size()) == spec.batch * of_sequence, "the page table has ",
          paging.table.size(), " entries: give ", spec.batch * of_sequence,
          ", batch times the pages of seqlen_k");
  const bool is_readable = !paging.table.is_on_device();
  for (int batch = 0; batch < spec.batch && is_readable; ++batch)
    for (int64_t i = 0; i * paging.rows < spec.length_of(batch); ++i) {
      const int page = paging.table[std::size_t(batch * of_sequence + i)];
      require(page >= 0 && page < paging.pages, "the page table names page ", page, " in sequence ", batch,
              ": give 0 to ", paging.pages - 1);
    }
  require(paging.shared >= 0 && paging.shared <= spec.seqlen_k && paging.shared % paging.rows == 0,
          "a shared prefix of ", paging.shared, " keys is not supported: use a multiple of the page size (",
          paging.rows, " rows), at most seqlen_k");
  // Queries follow the prefix, so that each sees all of it.
  const bool causal = spec.visibility.window.right >= 0;
  const int64_t least = int64_t(paging.shared) + (causal ? spec.seqlen_q - 1 : 0);
  for (int batch = 0; batch < spec.batch && paging.shared > 0 && is_readable; ++batch) {
    const auto pages = paging.table.begin() + batch * of_sequence;
    require(spec.length_of(batch) >= least &&
                std::equal(pages, pages + paging.shared / paging.rows, paging.table.begin()),
            "sequence ", batch, " does not share the prefix of ", paging.shared,
            " keys: give all sequences the same first pages, and at least ", least, " keys");
  }
  require_addressable("number of pages", paging.pages, spec.kv_heads, paging.rows, spec.head_dim);
}

/// Creates pages in random order.
void make_pages(Request& to) {
  Spec& spec = to.spec;
  const auto [rows, shared] = std::pair(spec.paging.rows, spec.paging.shared);
  if (rows == 0 && shared == 0) return;
  if (to.operation != Operation::decode)
    throw InputError(
        "--page-rows and --shared-prefix need a cache, which this step does not read: leave them out, or "
        "choose another step with --step");
  if (rows == 0) throw InputError("--shared-prefix needs pages: give --page-rows as well");
  if (shared % rows != 0 || shared > spec.seqlen_k)
    throw InputError("--shared-prefix is ", shared,
                     ": give whole pages, and at most as many keys as the sequences have");
  spec.paging = random_pages(spec, rows, shared, to.seed);
}

}  // namespace

const Definition pages = {
    .plural = "pages",
    .cure = "give contiguous keys and values",
    .is_in = [](const Spec& spec) { return spec.paging.rows != 0; },
    .give = [](Spec& spec,
               std::mt19937& random) { spec.paging = random_pages(spec, spec.seqlen_k, 0, random()); },
    .validate = validate_pages,
    .describe =
        [](const Spec& spec) {
          const int shared = spec.paging.shared;
          return concat("pages of ", spec.paging.rows,
                        shared > 0 ? concat(", ", shared, " keys shared") : "");
        },
    .tables = [](const Spec& spec) -> Tables {
      return {table(TableId::page_table, "page_table", spec.paging.table)};
    },
    .group = "What is visible",
    .options = {{.name = "--page-rows",
                 .type = "N",
                 .help = "Divide the cache into pages of N keys, in random order",
                 .read = [](const Value& value, Request& to) { to.spec.paging.rows = value.count(); }},
                {.name = "--shared-prefix",
                 .type = "N",
                 .help = "Let all sequences share the pages of their first N keys",
                 .read = [](const Value& value, Request& to) { to.spec.paging.shared = value.count(); }}},
    .complete = make_pages,
    .removed =
        [](const Spec& spec, const Inputs& inputs) {
          return std::pair(without_pages(spec), gather_pages(spec, inputs));
        },
    .has_gradient = false,
    .unread_keys = [](const Spec& spec) { return (spec.batch - 1.0) * spec.paging.shared; },
    .in_c = c_struct<FlashbookPages, FLASHBOOK_PAGES>(
        [](const auto& from, Spec& to) {
          require_positive("page_rows", from.page_rows);
          to.paging.rows = from.page_rows, to.paging.pages = from.pages, to.paging.shared = from.shared_keys;
          to.paging.table = on_device<int>(double(to.batch) * to.pages_of_sequence());
        },
        {{"page_table", place_of(TableId::page_table)}}),
};

const Definition paddings = {
    .plural = "padding before a sequence's first key",
    .is_in = [](const Spec& spec) { return !spec.paging.paddings.empty(); },
    .give =
        [](Spec& spec, std::mt19937& random) {
          Array<int>& lengths = spec.visibility.lengths;
          for (int batch = 0; batch < spec.batch; ++batch) {
            spec.paging.paddings.push_back(between(random, 0, spec.length_of(batch)));
            lengths.resize(std::size_t(spec.batch), spec.seqlen_k);
            lengths[std::size_t(batch)] -= spec.paging.paddings.back();
          }
        },
    .validate =
        [](const Spec& spec) {
          const Array<int>& paddings = spec.paging.paddings;
          require_count("paddings", paddings.size(), spec.batch, "one per sequence");
          if (paddings.is_on_device()) return;
          for (int batch = 0; batch < spec.batch; ++batch)
            require(paddings[std::size_t(batch)] >= 0 &&
                        paddings[std::size_t(batch)] <= spec.seqlen_k - spec.length_of(batch),
                    "sequence ", batch, " has ", paddings[std::size_t(batch)], " rows before its ",
                    spec.length_of(batch), " keys: give at least 0, and together at most ", spec.seqlen_k);
        },
    .describe = [](const Spec&) { return std::string("padded"); },
    .tables = [](const Spec& spec) -> Tables {
      return {table(TableId::paddings, "paddings", spec.paging.paddings)};
    },
    .removed =
        [](const Spec& spec, const Inputs& inputs) {
          // There is one page per sequence, and padding rows are rows of the sequence.
          Spec whole = spec;
          whole.visibility.lengths = {};
          const bool is_paged = spec.paging.rows > 0;
          std::pair plain(without_pages(spec), is_paged ? gather_pages(whole, inputs) : inputs);
          const Inputs padded = plain.second;
          for (const TensorId id : {TensorId::k, TensorId::v}) {
            if (!is_stored(spec, id)) continue;
            const int64_t columns = columns_of(spec, id), rows = spec.seqlen_k;
            for (int64_t head = 0; head < int64_t(spec.batch) * spec.kv_heads; ++head) {
              const int batch = int(head / spec.kv_heads);
              const auto first = padded[id].begin() + (head * rows + spec.paging.paddings[batch]) * columns;
              std::copy_n(first, spec.length_of(batch) * columns,
                          plain.second[id].begin() + head * rows * columns);
            }
          }
          return plain;
        },
    .has_gradient = false,
    .in_c = c_struct<FlashbookPaddings, FLASHBOOK_PADDINGS>(
        [](const auto&, Spec& to) { to.paging.paddings = on_device<int>(to.batch); },
        {{"paddings", place_of(TableId::paddings)}}),
};

}  // namespace features
}  // namespace flashbook

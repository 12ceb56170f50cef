#include "common/features/pages/pages.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/attention/random.h"
#include "common/features/helpers.h"

namespace flashbook {
namespace {

/// Calls body(paged, dense) for every row in use, with its numbers among the rows of all pages and of all
/// sequences.
template <typename Body>
void for_each_row(const Shape& shape, Body body) {
  const int64_t page_rows = shape.paging.rows, pages = shape.pages_of_sequence();
  for (int64_t batch = 0; batch < shape.batch; ++batch)
    for (int64_t head = 0; head < shape.kv_heads; ++head)
      for (int64_t key = 0; key < shape.length_of(int(batch)); ++key) {
        const int64_t page = shape.paging.table[batch * pages + key / page_rows];
        body((page * shape.kv_heads + head) * page_rows + key % page_rows,
             (batch * shape.kv_heads + head) * shape.seqlen_k + key);
      }
}

/// Inputs with K and V in the form of `to`; `ends` gives the source and the destination of each row in use.
template <typename Ends>
Inputs moved(const Shape& shape, const Inputs& inputs, const Shape& to, Ends ends) {
  Inputs result = inputs;
  for (TensorId id : {TensorId::k, TensorId::v}) {
    if (!is_stored(shape, id)) continue;
    const int64_t columns = columns_of(shape, id);
    result[id].assign(elements_of(to, id), NAN);
    for_each_row(shape, [&](int64_t paged, int64_t dense) {
      const auto [source, target] = ends(paged, dense);
      std::copy_n(&inputs[id][source * columns], columns, &result[id][target * columns]);
    });
  }
  return result;
}

}  // namespace

Shape without_pages(const Shape& shape) {
  Shape dense = shape;
  dense.paging = {};
  dense.layout.k = dense.layout.v = {};  // these strides described pages
  return dense;
}

Paging random_pages(const Shape& shape, int rows, int shared, uint64_t seed) {
  const int of_sequence = int(ceil_div(int64_t(shape.seqlen_k), rows));
  const int common = std::min(shared / rows, of_sequence), own = of_sequence - common;
  Paging paging = {.rows = rows, .pages = common + shape.batch * own, .table = {}, .shared = shared};
  std::vector<int> order(paging.pages);
  std::iota(order.begin(), order.end(), 0);
  for (int i = paging.pages - 1; i > 0; --i)
    std::swap(order[i], order[random_bits(seed, i) % uint64_t(i + 1)]);
  for (int batch = 0; batch < shape.batch; ++batch) {
    const auto first_own = order.begin() + common + int64_t(batch) * own;
    paging.table.insert(paging.table.end(), order.begin(), order.begin() + common);
    paging.table.insert(paging.table.end(), first_own, first_own + own);
  }
  return paging;
}

Inputs gather_pages(const Shape& shape, const Inputs& inputs) {
  return moved(shape, inputs, without_pages(shape),
               [](int64_t paged, int64_t dense) { return std::pair(paged, dense); });
}

Inputs scatter_pages(const Shape& shape, const Inputs& inputs) {
  return moved(shape, inputs, shape, [](int64_t paged, int64_t dense) { return std::pair(dense, paged); });
}

namespace features {
namespace {

void validate_pages(const Shape& shape) {
  const Paging& paging = shape.paging;
  require(paging.rows >= 0 && paging.pages >= 1, "there are ", paging.pages, " pages of ", paging.rows,
          " rows: give at least 1 of each");
  require(shape.dtype != DType::e4m3,
          "queries in e4m3 do not support pages: give f16 or bf16; the cache may be e4m3");
  const int64_t of_sequence = shape.pages_of_sequence();
  require(int64_t(paging.table.size()) == shape.batch * of_sequence, "the page table has ",
          paging.table.size(), " entries: give ", shape.batch * of_sequence,
          ", batch times the pages of seqlen_k");
  const bool is_readable = !paging.table.is_on_device();
  for (int batch = 0; batch < shape.batch && is_readable; ++batch)
    for (int64_t i = 0; i * paging.rows < shape.length_of(batch); ++i) {
      const int page = paging.table[std::size_t(batch * of_sequence + i)];
      require(page >= 0 && page < paging.pages, "the page table names page ", page, " in sequence ", batch,
              ": give 0 to ", paging.pages - 1);
    }
  require(paging.shared >= 0 && paging.shared <= shape.seqlen_k && paging.shared % paging.rows == 0,
          "a shared prefix of ", paging.shared, " keys is not supported: use a multiple of the page size (",
          paging.rows, " rows), at most seqlen_k");
  // Queries follow the prefix, so that each sees all of it.
  const bool causal = shape.visibility.window.right >= 0;
  const int64_t least = int64_t(paging.shared) + (causal ? shape.seqlen_q - 1 : 0);
  for (int batch = 0; batch < shape.batch && paging.shared > 0 && is_readable; ++batch) {
    const auto pages = paging.table.begin() + batch * of_sequence;
    require(shape.length_of(batch) >= least &&
                std::equal(pages, pages + paging.shared / paging.rows, paging.table.begin()),
            "sequence ", batch, " does not share the prefix of ", paging.shared,
            " keys: give all sequences the same first pages, and at least ", least, " keys");
  }
  require_addressable("number of pages", paging.pages, shape.kv_heads, paging.rows, shape.head_dim);
}

/// Pages in random order.
void make_pages(Request& to) {
  Shape& shape = to.shape;
  const auto [rows, shared] = std::pair(shape.paging.rows, shape.paging.shared);
  if (rows == 0 && shared == 0) return;
  if (to.operation != Operation::decode)
    throw InputError(
        "--page-rows and --shared-prefix need a cache, which this step does not read: leave them out, or "
        "choose another step with --step");
  if (rows == 0) throw InputError("--shared-prefix needs pages: give --page-rows as well");
  if (shared % rows != 0 || shared > shape.seqlen_k)
    throw InputError("--shared-prefix is ", shared,
                     ": give whole pages, and at most as many keys as the sequences have");
  shape.paging = random_pages(shape, rows, shared, to.seed);
}

}  // namespace

const Definition pages = {
    .plural = "pages",
    .cure = "give contiguous keys and values",
    .is_in = [](const Shape& shape) { return shape.paging.rows != 0; },
    .give = [](Shape& shape,
               std::mt19937& random) { shape.paging = random_pages(shape, shape.seqlen_k, 0, random()); },
    .validate = validate_pages,
    .describe =
        [](const Shape& shape) {
          const int shared = shape.paging.shared;
          return concat("pages of ", shape.paging.rows,
                        shared > 0 ? concat(", ", shared, " keys shared") : "");
        },
    .tables = [](const Shape& shape) -> Tables {
      return {table(TableId::page_table, "page_table", shape.paging.table)};
    },
    .group = "What is visible",
    .options = {{.name = "--page-rows",
                 .type = "N",
                 .help = "Divide the cache into pages of N keys, in random order",
                 .read = [](const Value& value, Request& to) { to.shape.paging.rows = value.count(); }},
                {.name = "--shared-prefix",
                 .type = "N",
                 .help = "Let all sequences share the pages of their first N keys",
                 .read = [](const Value& value, Request& to) { to.shape.paging.shared = value.count(); }}},
    .complete = make_pages,
    .removed =
        [](const Shape& shape, const Inputs& inputs) {
          return std::pair(without_pages(shape), gather_pages(shape, inputs));
        },
    .has_gradient = false,
    .repeated_keys = [](const Shape& shape) { return (shape.batch - 1.0) * shape.paging.shared; },
};

const Definition paddings = {
    .plural = "padding before a sequence's first key",
    .is_in = [](const Shape& shape) { return !shape.paging.paddings.empty(); },
    .give =
        [](Shape& shape, std::mt19937& random) {
          Array<int>& lengths = shape.visibility.lengths;
          for (int batch = 0; batch < shape.batch; ++batch) {
            shape.paging.paddings.push_back(between(random, 0, shape.length_of(batch)));
            lengths.resize(std::size_t(shape.batch), shape.seqlen_k);
            lengths[std::size_t(batch)] -= shape.paging.paddings.back();
          }
        },
    .validate =
        [](const Shape& shape) {
          const Array<int>& paddings = shape.paging.paddings;
          require_count("paddings", paddings.size(), shape.batch, "one per sequence");
          if (paddings.is_on_device()) return;
          for (int batch = 0; batch < shape.batch; ++batch)
            require(paddings[std::size_t(batch)] >= 0 &&
                        paddings[std::size_t(batch)] <= shape.seqlen_k - shape.length_of(batch),
                    "sequence ", batch, " has ", paddings[std::size_t(batch)], " rows before its ",
                    shape.length_of(batch), " keys: give at least 0, and together at most ", shape.seqlen_k);
        },
    .describe = [](const Shape&) { return std::string("padded"); },
    .tables = [](const Shape& shape) -> Tables {
      return {table(TableId::paddings, "paddings", shape.paging.paddings)};
    },
    .removed =
        [](const Shape& shape, const Inputs& inputs) {
          // There is one page for each sequence, and padding rows are rows of the sequence.
          Shape whole = shape;
          whole.visibility.lengths = {};
          const bool is_paged = shape.paging.rows > 0;
          std::pair plain(without_pages(shape), is_paged ? gather_pages(whole, inputs) : inputs);
          const Inputs padded = plain.second;
          for (const TensorId id : {TensorId::k, TensorId::v}) {
            if (!is_stored(shape, id)) continue;
            const int64_t columns = columns_of(shape, id), rows = shape.seqlen_k;
            for (int64_t head = 0; head < int64_t(shape.batch) * shape.kv_heads; ++head) {
              const int batch = int(head / shape.kv_heads);
              const auto first = padded[id].begin() + (head * rows + shape.paging.paddings[batch]) * columns;
              std::copy_n(first, shape.length_of(batch) * columns,
                          plain.second[id].begin() + head * rows * columns);
            }
          }
          return plain;
        },
    .has_gradient = false,
};

const Definition packed_queries = {
    .plural = "packed queries against a cache",
    .cure = "give every sequence the same number",
    .is_in = [](const Shape& shape) { return shape.packed_queries != 0; },
    .give = [](Shape& shape, std::mt19937&) { shape.packed_queries = shape.batch * shape.seqlen_q; },
    .validate =
        [](const Shape& shape) {
          require(shape.packed_queries > 0, "there are ", shape.packed_queries,
                  " packed queries: give at least 1");
        },
    .describe = [](const Shape& shape) { return concat(shape.packed_queries, " queries packed"); },
    .removed = [](const Shape&, const Inputs&) -> std::pair<Shape, Inputs> {
      throw InputError("the oracle does not support packed queries: compare each sequence on its own");
    },
    .has_gradient = false,
};

const Definition unsplit = {
    .plural = "results that do not depend on the batch (one split)",
    .cure = "let it choose the number of splits",
    .is_in = [](const Shape& shape) { return shape.unsplit; },
    .give = [](Shape& shape, std::mt19937&) { shape.unsplit = true; },
};

}  // namespace features
}  // namespace flashbook

#include "common/attention/pages.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/attention/random.h"

namespace flashbook {
namespace {

/// Calls body(paged, dense): a row's number among those of all pages and of all sequences, of every row in
/// use.
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

/// Inputs whose K and V are as in `to`: of each row in use, `ends` says from where it goes where.
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
  dense.layout.k = dense.layout.v = {};  // they were those of pages
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

}  // namespace flashbook

#include "common/attention/pages.h"

#include <algorithm>
#include <cmath>

namespace flashbook {
namespace {

/// Calls body(paged, dense): where a row of K or V begins in its page and in one piece, of every row in use.
template <typename Body>
void for_each_row(const Shape& shape, Body body) {
  const int64_t page_rows = shape.paging.rows, pages = (shape.seqlen_k + page_rows - 1) / page_rows;
  for (int64_t batch = 0; batch < shape.batch; ++batch) {
    const std::vector<int>& lengths = shape.visibility.lengths;
    const int64_t length = lengths.empty() ? shape.seqlen_k : lengths[batch];
    for (int64_t head = 0; head < shape.kv_heads; ++head)
      for (int64_t key = 0; key < length; ++key) {
        const int64_t page = shape.paging.table[batch * pages + key / page_rows];
        body(((page * shape.kv_heads + head) * page_rows + key % page_rows) * shape.head_dim,
             ((batch * shape.kv_heads + head) * shape.seqlen_k + key) * shape.head_dim);
      }
  }
}

}  // namespace

Shape without_pages(const Shape& shape) {
  Shape dense = shape;
  dense.paging = {};
  return dense;
}

Inputs gather_pages(const Shape& shape, const Inputs& inputs) {
  Inputs dense = inputs;
  dense.k.assign(shape.k_elements(), NAN);
  dense.v.assign(shape.k_elements(), NAN);
  for_each_row(shape, [&](int64_t paged, int64_t row) {
    std::copy_n(&inputs.k[paged], shape.head_dim, &dense.k[row]);
    std::copy_n(&inputs.v[paged], shape.head_dim, &dense.v[row]);
  });
  return dense;
}

Inputs scatter_pages(const Shape& shape, const Inputs& inputs) {
  Inputs pages = inputs;
  pages.k.assign(elements_of(shape, TensorId::k), NAN);
  pages.v.assign(elements_of(shape, TensorId::v), NAN);
  for_each_row(shape, [&](int64_t paged, int64_t row) {
    std::copy_n(&inputs.k[row], shape.head_dim, &pages.k[paged]);
    std::copy_n(&inputs.v[row], shape.head_dim, &pages.v[paged]);
  });
  return pages;
}

}  // namespace flashbook

#include "common/attention/gradient.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>
#include <span>

#include "common/attention/bounds.h"
#include "common/attention/error.h"
#include "common/attention/parallel.h"
#include "common/numeric/float_formats.h"

namespace flashbook {
namespace {

/// Sums of terms in a row, and how large they are before anything cancels.
template <typename Sum>
struct Rows {
  std::vector<Sum> values;   // [rows, head_dim]
  std::vector<Sum> squares;  // [rows, head_dim]: of the terms

  explicit Rows(int64_t elements) : values(elements), squares(elements) {}

  /// Adds factor * terms to a row. `size` is that of the factor, if nothing in it had cancelled.
  void add(int64_t row, std::span<const float> terms, Sum factor, Sum size) {
    Sum* const value = &values[row * terms.size()];
    Sum* const square = &squares[row * terms.size()];
    for (std::size_t c = 0; c < terms.size(); ++c) {
      value[c] += factor * terms[c];
      square[c] += (size * terms[c]) * (size * terms[c]);
    }
  }
};

template <typename A>
auto dot(std::span<const A> a, std::span<const float> b) {
  constexpr std::size_t kLanes = 16;  // sums that do not wait for one another; divides head_dim
  A lanes[kLanes] = {};
  for (std::size_t c = 0; c < a.size(); c += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[c + lane] * A(b[c + lane]);
  return std::accumulate(std::begin(lanes), std::end(lanes), A(0));
}

/// The gradients of a key head and of the query heads that read it, by the textbook, in `Sum`. `store(x)` is
/// what lies in memory of S, P, dP and dS, and `store_o` of O.
template <typename Sum, typename Store>
class GroupGradient {
 public:
  GroupGradient(const Shape& shape, const Inputs& inputs, int group, Store store)
      : dq(int64_t(shape.heads) / shape.kv_heads * shape.seqlen_q * shape.head_dim),
        dk(int64_t(shape.seqlen_k) * shape.head_dim),
        dv(int64_t(shape.seqlen_k) * shape.head_dim),
        shape_(shape),
        inputs_(inputs),
        batch_(group / shape.kv_heads),
        first_key_(int64_t(group) * shape.seqlen_k),
        store_(store) {
    const int heads = shape.heads / shape.kv_heads;
    for (int i = 0; i < heads; ++i)
      for (int query = 0; query < shape.seqlen_q; ++query)
        add_query(group % shape.kv_heads * heads + i, query, int64_t(i) * shape.seqlen_q + query,
                  (int64_t(group) * heads + i) * shape.seqlen_q + query);
  }

  Rows<Sum> dq, dk, dv;  ///< dq of the group's query heads, one after another
  Sum largest_lse = 1;   ///< of the group's log-sum-exps, and of 1

 private:
  std::span<const float> row(const std::vector<float>& tensor, int64_t index) const {
    return std::span(tensor).subspan(index * shape_.head_dim, shape_.head_dim);
  }

  /// `dq_row` is the query's row within the group, `q_row` that of Q and dO.
  void add_query(int head, int query, int64_t dq_row, int64_t q_row) {
    const std::span<const float> q = row(inputs_.q, q_row), d_o = row(inputs_.d_o, q_row);
    const std::vector<Sum> wide_q(q.begin(), q.end()), wide_d_o(d_o.begin(), d_o.end());
    const int64_t own = own_key(shape_, batch_, query);
    const KeyRange range = keys_seen(shape_, batch_, head, query, 1);

    std::vector<int> keys;
    std::vector<Sum> p, slope;  // P, at first S; and the derivative of the score function
    Sum row_max = -std::numeric_limits<Sum>::infinity();
    for (int key = range.begin; key < range.end; ++key) {
      if (!sees(shape_, batch_, head, query, key)) continue;
      Sum score = Sum(shape_.scale) * dot(std::span<const Sum>(wide_q), row(inputs_.k, first_key_ + key));
      Sum derivative = 1;
      if (const Sum cap = shape_.score.softcap; cap > 0) {
        const Sum bent = std::tanh(score / cap);
        score = cap * bent, derivative = 1 - bent * bent;
      }
      if (!shape_.score.alibi.empty()) score -= shape_.score.alibi[head] * Sum(std::abs(own - key));
      keys.push_back(key);
      p.push_back(store_(score));
      slope.push_back(derivative);
      row_max = std::max(row_max, p.back());
    }
    Sum row_sum = 0;
    for (Sum& score : p) row_sum += score = std::exp(score - row_max);
    if (!keys.empty()) largest_lse = std::max(largest_lse, std::abs(row_max + std::log(row_sum)));
    std::vector<Sum> o(shape_.head_dim);
    for (std::size_t j = 0; j < keys.size(); ++j) {
      p[j] = store_(p[j] / row_sum);
      const std::span<const float> v = row(inputs_.v, first_key_ + keys[j]);
      for (int c = 0; c < shape_.head_dim; ++c) o[c] += p[j] * v[c];
    }
    for (Sum& value : o) value = store_(value);
    const Sum d = dot(std::span<const Sum>(o), d_o);  // the row's D

    for (std::size_t j = 0; j < keys.size(); ++j) {
      const Sum dp = store_(dot(std::span<const Sum>(wide_d_o), row(inputs_.v, first_key_ + keys[j])));
      const Sum ds = Sum(shape_.scale) * slope[j] * store_(p[j] * (dp - d));
      const Sum size = Sum(shape_.scale) * p[j] * (std::abs(dp) + std::abs(d));
      dq.add(dq_row, row(inputs_.k, first_key_ + keys[j]), ds, size);
      dk.add(keys[j], q, ds, size);
      dv.add(keys[j], d_o, p[j], p[j]);
    }
  }

  const Shape& shape_;
  const Inputs& inputs_;
  const int batch_;
  const int64_t first_key_;  // row of K and V
  const Store store_;
};

/// A gradient while its groups are computed.
struct Gathered {
  TensorReference reference;
  std::vector<double> error, scale, floor;  // by row
  DType type;
  int64_t dims;

  Gathered(const Shape& shape, TensorId id)
      : reference{.id = id, .values = std::vector<double>(elements_of(shape, id)), .bound = {}},
        error(reference.values.size() / shape.head_dim),
        scale(error.size()),
        floor(error.size()),
        type(type_of(shape, id)),
        dims(shape.head_dim) {}

  /// Rows from `first` on. `floor_part` is the floor as a part of a row's scale.
  void set(int64_t first, const Rows<double>& exact, Rows<float>& plain, double floor_part) {
    round_to(type, plain.values);
    std::ranges::copy(exact.values, reference.values.begin() + first * dims);
    for (int64_t i = 0; i < int64_t(exact.values.size()) / dims; ++i) {
      const auto row = [&](const auto& values) { return std::span(values).subspan(i * dims, dims); };
      error[first + i] = largest_error(row(exact.values), row(plain.values));
      scale[first + i] =
          std::max(largest_value(row(exact.values)), std::sqrt(largest_value(row(exact.squares))));
      floor[first + i] = floor_part * scale[first + i];
    }
  }

  TensorReference finished() {
    reference.bound = bounds_of(error, scale, floor);
    return std::move(reference);
  }
};

void validate_gradient(const Shape& shape) {
  validate(shape);
  if (shape.paging.rows > 0)
    throw InputError("gradients of paged keys are not defined: give keys and values of one piece a sequence");
  if (shape.dtype == DType::e4m3)
    throw InputError("gradients in e4m3 are not defined: give f32, f16 or bf16");
}

}  // namespace

std::vector<TensorReference> make_gradient_reference(const Shape& shape, const Inputs& inputs,
                                                     const Progress& progress) {
  validate_gradient(shape);
  Gathered dq(shape, TensorId::dq), dk(shape, TensorId::dk), dv(shape, TensorId::dv);
  const int groups = shape.batch * shape.kv_heads;
  std::mutex mutex;  // of groups_done and progress
  int groups_done = 0;
  parallel_for(groups, [&](int64_t group) {
    const GroupGradient<double, double (*)(double)> exact(shape, inputs, int(group),
                                                          [](double value) { return value; });
    with_host_type(shape.dtype, [&]<typename T>(T) {
      GroupGradient<float, float (*)(float)> plain(
          shape, inputs, int(group), [](float value) { return to_float(from_float<T>(value)); });
      // P is exp(S - log-sum-exp), and the log-sum-exp may be off by the floor of its own bound.
      const double floor = floor_for(type_of(shape, TensorId::dq)) + 0x1p-20 * exact.largest_lse;
      dq.set(group * (shape.heads / shape.kv_heads) * shape.seqlen_q, exact.dq, plain.dq, floor);
      dk.set(group * shape.seqlen_k, exact.dk, plain.dk, floor);
      dv.set(group * shape.seqlen_k, exact.dv, plain.dv, floor);
    });
    const std::lock_guard lock(mutex);
    if (progress) progress(double(++groups_done) / groups);
  });
  std::vector<TensorReference> references;
  for (Gathered* gradient : {&dq, &dk, &dv}) references.push_back(gradient->finished());
  return references;
}

}  // namespace flashbook

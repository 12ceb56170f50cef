#include "common/attention/gradient.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>
#include <span>
#include <utility>

#include "common/attention/bounds.h"
#include "common/attention/error.h"
#include "common/attention/parallel.h"
#include "common/features/definition.h"
#include "common/numeric/float_formats.h"

namespace flashbook {
namespace {

/// A row of sums, and the size of their terms before any cancellation.
template <typename Sum>
struct Row {
  std::vector<Sum> values, squares;  // a row; squares of the terms

  explicit Row(int64_t dims) : values(dims), squares(dims) {}

  /// Adds factor * terms. `size` is the factor's magnitude before any cancellation.
  void add(std::span<const float> terms, Sum factor, Sum size) {
    for (std::size_t c = 0; c < terms.size(); ++c) {
      values[c] += factor * terms[c];
      squares[c] += (size * terms[c]) * (size * terms[c]);
    }
  }
};

template <typename Sum, typename A>
Sum dot(std::span<const A> a, std::span<const float> b) {
  constexpr std::size_t kLanes = 16;  // number of independent sums
  Sum lanes[kLanes] = {};
  std::size_t c = 0;
  for (; c + kLanes <= a.size(); c += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += Sum(a[c + lane]) * Sum(b[c + lane]);
  for (; c < a.size(); ++c) lanes[c % kLanes] += Sum(a[c]) * Sum(b[c]);
  return std::accumulate(std::begin(lanes), std::end(lanes), Sum(0));
}

/// The values from which a query's probabilities and dS follow.
template <typename Sum>
struct QueryState {
  Sum max = -std::numeric_limits<Sum>::infinity(), sum = 0;  // P is exp(S - max) / sum
  Sum d = 0, d_size = 0;                                     // D, and its size before its terms cancel

  Sum lse() const { return max + std::log(sum); }
};

/// Computes rows of the gradients by the textbook method, in `Sum`. `store(x)` rounds S, P, O, dP and dS as a
/// store to memory would.
template <typename Sum, typename Store>
class Textbook {
 public:
  Textbook(const Spec& spec, const Inputs& inputs, Store store)
      : spec_(spec), inputs_(inputs), store_(store) {
    if constexpr (std::is_same_v<Sum, float>)
      for (const Definition* feature : having(&Definition::score_in_float, spec))
        changes_.push_back(feature->score_in_float);
    else
      for (const Definition* feature : having(&Definition::score, spec)) changes_.push_back(feature->score);
    kept_ = having(&Definition::kept, spec);
    sinks_ = having(&Definition::sink, spec);
  }

  /// Returns a row of dQ, and computes the query's state.
  Row<Sum> query(int64_t row, QueryState<Sum>& state) const {
    const Query q = query_of(row);
    const KeyRange range = keys_seen(spec_, q.batch, q.head, q.query, 1);
    std::vector<int64_t> keys;  // rows of K and V
    std::vector<Sum> p;         // holds S first
    std::vector<Score> scores;
    state = {};
    for (int key = range.begin; key < range.end; ++key) {
      if (!sees(spec_, q.batch, q.head, q.query, key)) continue;
      const Score score = score_of(q, key);
      keys.push_back(q.first_key + key);
      p.push_back(score.value);
      scores.push_back(score);
      state.max = std::max(state.max, score.value);
    }
    for (const Definition* feature : sinks_)
      if (!p.empty()) state.max = std::max(state.max, Sum(feature->sink(spec_, q.head)));
    for (const Sum score : p) state.sum += std::exp(score - state.max);
    for (const Definition* feature : sinks_)
      if (!p.empty()) state.sum += std::exp(feature->sink(spec_, q.head) - state.max);
    std::vector<Sum> o(spec_.value_dim);
    for (std::size_t j = 0; j < keys.size(); ++j) {
      p[j] = probability(p[j], state);
      const std::span<const float> v = row_of(TensorId::v, keys[j]);
      for (int c = 0; c < spec_.value_dim; ++c) o[c] += p[j] * scores[j].kept * v[c];
    }
    for (Sum& value : o) value = store_(value);
    set_d(std::span<const Sum>(o), row, state);

    Row<Sum> dq(spec_.head_dim);
    for (std::size_t j = 0; j < keys.size(); ++j) {
      const Change ds = change(q, keys[j], p[j], scores[j], state);
      dq.add(row_of(TensorId::k, keys[j]), ds.value, ds.size);
    }
    return dq;
  }

  /// Returns the state of a query, computed from the given O and log-sum-exp.
  QueryState<Sum> given(int64_t row) const {
    QueryState<Sum> state{.max = inputs_.lse[row], .sum = 1};
    set_d(row_of(TensorId::o, row), row, state);
    return state;
  }

  /// Returns a row of dK and one of dV. `states` are those of all queries that may see the key.
  std::pair<Row<Sum>, Row<Sum>> key(int64_t row, const std::vector<QueryState<Sum>>& states) const {
    std::pair<Row<Sum>, Row<Sum>> gradients{Row<Sum>(spec_.head_dim), Row<Sum>(spec_.value_dim)};
    const int64_t heads = spec_.heads / spec_.kv_heads;
    const int key = int(row % spec_.seqlen_k);
    const int64_t first = row / spec_.seqlen_k * heads * spec_.seqlen_q;
    for (int64_t at = first; at < first + heads * spec_.seqlen_q; ++at) {
      const Query q = query_of(at);
      if (!sees(spec_, q.batch, q.head, q.query, key)) continue;
      const Score score = score_of(q, key);
      const Sum p = probability(score.value, states[at]);
      const Change ds = change(q, row, p, score, states[at]);
      gradients.first.add(q.q, ds.value, ds.size);
      gradients.second.add(q.d_o, p * score.kept, p * score.kept);
    }
    return gradients;
  }

  /// Adds a query's contribution to the gradient of the bias. `biases` has one row, with one term, per value
  /// of the bias.
  void add_to_bias(int64_t row, const QueryState<Sum>& state, std::vector<Row<Sum>>& biases) const {
    const Query q = query_of(row);
    const KeyRange range = keys_seen(spec_, q.batch, q.head, q.query, 1);
    const RelativeBias& bias = spec_.score.bias;
    constexpr float kOne[] = {1};
    for (int key = range.begin; key < range.end; ++key) {
      if (!sees(spec_, q.batch, q.head, q.query, key)) continue;
      const Score score = score_of(q, key);
      const Change ds = change(q, q.first_key + key, probability(score.value, state), score, state);
      const int64_t place = bias.place(q.head, key - q.own_key);
      biases[std::size_t(place)].add(kOne, ds.value / Sum(spec_.scale), ds.size / Sum(spec_.scale));
    }
  }

 private:
  struct Query {
    int batch, head, query;
    int64_t first_key;  // row of K and V
    std::span<const float> q, d_o;
    int64_t own_key;
    int sequence;
  };
  struct Score {
    Sum value, slope;  // the slope is the derivative of the score function
    Sum kept;          // factor that dropout applies to the probability
  };
  struct Change {
    Sum value, size;  // scale * dS, and its size before any cancellation
  };

  std::span<const float> row_of(TensorId id, int64_t index) const {
    const int columns = columns_of(spec_, id);
    return std::span(inputs_[id]).subspan(index * columns, columns);
  }

  Query query_of(int64_t row) const {
    const int64_t head = row / spec_.seqlen_q;
    const int batch = int(head / spec_.heads), query = int(row % spec_.seqlen_q);
    return {batch,
            int(head % spec_.heads),
            query,
            head / (spec_.heads / spec_.kv_heads) * spec_.seqlen_k,
            row_of(TensorId::q, row),
            row_of(TensorId::d_o, row),
            own_key(spec_, batch, query),
            sequence_of(spec_, batch, query)};
  }

  Score score_of(const Query& q, int key) const {
    Sum score = Sum(spec_.scale) * dot<Sum>(q.q, row_of(TensorId::k, q.first_key + key)), slope = 1, kept = 1;
    const Pair pair{q.batch, q.head, q.query, key, key - q.own_key, q.sequence};
    for (const auto change : changes_) {
      const Changed<Sum> changed = change(spec_, pair, score);
      score = changed.score, slope *= changed.slope;
    }
    for (const Definition* feature : kept_) kept *= Sum(feature->kept(spec_, pair));
    return {store_(score), slope, kept};
  }

  Sum probability(Sum score, const QueryState<Sum>& state) const {
    return store_(std::exp(score - state.max) / state.sum);
  }

  /// Returns D of a row, from its O. O is rounded to its type, so the error of D is relative to its terms,
  /// not to their sum.
  template <typename A>
  void set_d(std::span<const A> o, int64_t row, QueryState<Sum>& state) const {
    const std::span<const float> d_o = row_of(TensorId::d_o, row);
    const Sum d_lse = inputs_.d_lse.empty() ? 0 : inputs_.d_lse[row];
    state.d = dot<Sum>(o, d_o) - d_lse;
    Sum squares = d_lse * d_lse;
    for (std::size_t c = 0; c < o.size(); ++c) squares += (Sum(o[c]) * d_o[c]) * (Sum(o[c]) * d_o[c]);
    state.d_size = std::max(std::abs(state.d), std::sqrt(squares));
  }

  Change change(const Query& q, int64_t key_row, Sum p, const Score& score,
                const QueryState<Sum>& state) const {
    const Sum dp = score.kept * store_(dot<Sum>(q.d_o, row_of(TensorId::v, key_row)));
    return {Sum(spec_.scale) * score.slope * store_(p * (dp - state.d)),
            Sum(spec_.scale) * p * (std::abs(dp) + state.d_size)};
  }

  const Spec& spec_;
  const Inputs& inputs_;
  const Store store_;
  std::vector<Changed<Sum> (*)(const Spec&, const Pair&, Sum)> changes_;
  std::vector<const Definition*> kept_, sinks_;
};

struct Gathered {
  TensorReference reference;
  std::vector<double> error, scale, floor;  // per row
  DType type;
  int64_t dims;

  Gathered(const Spec& spec, TensorId id, std::vector<int64_t> rows)
      : reference{.id = id, .rows = std::move(rows), .values = {}, .bound = {}},
        error(reference.rows.size()),
        scale(error.size()),
        floor(error.size()),
        type(type_of(spec, id)),
        dims(columns_of(spec, id)) {
    reference.values.resize(error.size() * dims);
  }

  void set(int64_t i, const Row<double>& exact, Row<float>& plain, double floor_part) {
    round_to(type, plain.values);
    std::ranges::copy(exact.values, reference.values.begin() + i * dims);
    error[i] = largest_error(exact.values, plain.values);
    scale[i] = std::max(largest_value(exact.values), std::sqrt(largest_value(exact.squares)));
    floor[i] = floor_part * scale[i];
  }

  TensorReference finished() {
    reference.bound = bounds_of(error, scale, floor);
    return std::move(reference);
  }
};

/// Calls `use` with the gradients by the textbook method, in FP64 and in the problem's own type.
template <typename Use>
void with_textbooks(const Spec& spec, const Inputs& inputs, const Use& use) {
  with_host_type(spec.dtype, [&]<typename T>(T) {
    use(Textbook<double, double (*)(double)>(spec, inputs, [](double value) { return value; }),
        Textbook<float, float (*)(float)>(spec, inputs,
                                          [](float value) { return to_float(from_float<T>(value)); }));
  });
}

void validate_gradient(const Spec& spec) {
  validate(spec);
  for (const Definition* feature : definitions())
    if (!feature->has_gradient && feature->is_in(spec))
      throw InputError("gradients are not defined for ", feature->plural, ": ", feature->cure);
}

}  // namespace

std::vector<TensorReference> make_gradient_reference(const Spec& spec, const Inputs& inputs,
                                                     const Progress& progress) {
  return make_gradient_reference(spec, inputs, all_rows(spec), all_key_rows(spec), progress);
}

std::vector<TensorReference> make_gradient_reference(const Spec& spec, const Inputs& inputs,
                                                     std::vector<int64_t> queries, std::vector<int64_t> keys,
                                                     const Progress& progress) {
  validate_gradient(spec);
  const bool is_sample = int64_t(queries.size()) < spec.q_rows();
  const int64_t q_count = int64_t(queries.size()), k_count = int64_t(keys.size());
  Gathered dq(spec, TensorId::dq, std::move(queries));
  Gathered dk(spec, TensorId::dk, keys), dv(spec, TensorId::dv, std::move(keys));
  std::mutex mutex;  // protects rows_done and progress
  int64_t rows_done = 0;
  const auto count_row = [&] {
    const std::lock_guard lock(mutex);
    if (progress) progress(double(++rows_done) / double(q_count + k_count));
  };
  with_textbooks(spec, inputs, [&](const auto& exact, const auto& plain) {
    std::vector<QueryState<double>> states(spec.q_rows());
    std::vector<QueryState<float>> plain_states(spec.q_rows());
    if (is_sample)  // the sample's queries then use their own states
      parallel_for(spec.q_rows(), [&](int64_t row) {
        states[row] = exact.given(row);
        plain_states[row] = plain.given(row);
      });
    // P is exp(S - log-sum-exp), and the log-sum-exp may be off by the floor of its own bound.
    const auto floor_of = [&](double largest_lse) {
      return floor_for(type_of(spec, TensorId::dq)) + 0x1p-20 * std::max(1.0, largest_lse);
    };
    parallel_for(q_count, [&](int64_t i) {
      const int64_t row = dq.reference.rows[i];
      const Row<double> value = exact.query(row, states[row]);
      Row<float> plain_value = plain.query(row, plain_states[row]);
      const double lse = states[row].lse();
      dq.set(i, value, plain_value, floor_of(std::isfinite(lse) ? std::abs(lse) : 0));
      count_row();
    });
    // The largest log-sum-exp of the queries that read a key head.
    std::vector<double> largest_lse(int64_t(spec.batch) * spec.kv_heads);
    const int64_t rows_of_group = spec.q_rows() / int64_t(largest_lse.size());
    for (int64_t row = 0; row < spec.q_rows(); ++row)
      if (const double lse = std::abs(states[row].lse()); std::isfinite(lse))
        largest_lse[row / rows_of_group] = std::max(largest_lse[row / rows_of_group], lse);
    parallel_for(k_count, [&](int64_t i) {
      const int64_t row = dk.reference.rows[i];
      const double floor = floor_of(largest_lse[row / spec.seqlen_k]);
      const auto values = exact.key(row, states);
      auto plain_values = plain.key(row, plain_states);
      dk.set(i, values.first, plain_values.first, floor);
      dv.set(i, values.second, plain_values.second, floor);
      count_row();
    });
  });
  std::vector<TensorReference> references;
  for (Gathered* gradient : {&dq, &dk, &dv}) references.push_back(gradient->finished());
  return references;
}

BiasReference make_bias_reference(const Spec& spec, const Inputs& inputs) {
  validate_gradient(spec);
  BiasReference reference;
  with_textbooks(spec, inputs, [&](const auto& exact, const auto& plain) {
    std::vector<Row<double>> values(spec.score.bias.values.size(), Row<double>(1));
    std::vector<Row<float>> plain_values(values.size(), Row<float>(1));
    double largest_lse = 1;
    for (int64_t row = 0; row < spec.q_rows(); ++row) {
      QueryState<double> state;
      QueryState<float> plain_state;
      exact.query(row, state), plain.query(row, plain_state);
      exact.add_to_bias(row, state, values), plain.add_to_bias(row, plain_state, plain_values);
      if (const double lse = std::abs(state.lse()); std::isfinite(lse))
        largest_lse = std::max(largest_lse, lse);
    }
    std::vector<double> error, scale, floor;
    for (std::size_t i = 0; i < values.size(); ++i) {
      reference.values.push_back(values[i].values[0]);
      error.push_back(largest_error(values[i].values, plain_values[i].values));
      scale.push_back(std::max(std::abs(values[i].values[0]), std::sqrt(values[i].squares[0])));
      floor.push_back((floor_for(spec.dtype) + 0x1p-20 * largest_lse) * scale.back());
    }
    reference.bound = bounds_of(error, scale, floor);
  });
  return reference;
}

}  // namespace flashbook

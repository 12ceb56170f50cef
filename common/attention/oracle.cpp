#include "common/attention/oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include "common/attention/bounds.h"
#include "common/attention/parallel.h"
#include "common/attention/random.h"
#include "common/features/definition.h"
#include "common/numeric/float_formats.h"
#include "common/numeric/widest_vectors.h"

namespace flashbook {
namespace {

constexpr int kBlockRows = 16;  // rows of one head that share a pass over K and V
constexpr int kTileKeys = 64;   // keys per tile: 256 dimensions in FP64 fill 128 KB of a cache
constexpr int kLanes = 64;      // number of iterations of innermost loops, constant so that they vectorise

/// The sum of a single e4m3 number may be off by half a unit of its three bits, a 16th. In a long row such
/// errors cancel, and lse_scale, the root of the sum of squares, measures how well.
constexpr double kRoundedSum = 0x1p-4;

/// The allowance for O, relative to its size: where e4m3 happens to represent P exactly, a linearly
/// approximated exponential is off by up to a 16th of it (chapters/06_fp8/softmax.cuh), and over a few keys
/// these errors partly cancel.
constexpr double kByLine = 0x1p-6;

using RowSpan = std::span<const int64_t>;  // rows of O, ascending

/// Computes textbook attention for a few query rows of one head: S, then P, then O, all in `Sum`.
template <typename Sum>
class RowBlock {
 public:
  RowBlock(const Spec& spec, const Inputs& inputs, RowSpan rows)
      : spec_(spec), inputs_(inputs), rows_(rows), dims_(spec.head_dim), value_dims_(spec.value_dim) {
    look();
    stride_ = ceil_div(keys_, kTileKeys) * kTileKeys;
    first_key_ = head_ / (spec.heads / spec.kv_heads) * spec.seqlen_k;
    scores_.resize(rows.size() * stride_);
    tile_.resize(kTileKeys * std::max(dims_, value_dims_));
    o.resize(rows.size() * value_dims_);
    lse.resize(rows.size());
    lse_scale.resize(rows.size());
    seen.resize(rows.size());
    if constexpr (std::is_same_v<Sum, float>)
      for (const Definition* feature : having(&Definition::score_in_float, spec))
        changes_.push_back(feature->score_in_float);
    else
      for (const Definition* feature : having(&Definition::score, spec)) changes_.push_back(feature->score);
  }

  /// `store_score(s)` rounds a score as a store to memory would, and `store_probability(p, row_sum)` rounds p
  /// / row_sum. `sums_stored`: the log-sum-exp is computed from the rounded values.
  template <typename StoreScore, typename StoreProbability>
  void run(StoreScore store_score, StoreProbability store_probability, bool sums_stored = false) {
    multiply_by_keys();
    for (std::size_t r = 0; r < rows_.size(); ++r) softmax(r, store_score, store_probability, sums_stored);
    multiply_by_values();
  }

  std::vector<Sum> o;          ///< [rows, value_dim]
  std::vector<Sum> lse;        ///< [rows]
  std::vector<Sum> lse_scale;  ///< [rows], the square root of the sum of (P * max(1, |S|))^2
  std::vector<int64_t> seen;   ///< [rows], number of keys that the row sees

 private:
  int query(std::size_t r) const { return int(rows_[r] % spec_.seqlen_q); }
  int batch() const { return int(head_ / spec_.heads); }
  int64_t visible_keys(std::size_t r) const { return dense_ ? spec_.visible_keys(query(r)) : keys_; }
  bool is_hidden(std::size_t r, int64_t key) const { return !dense_ && hidden_[r * keys_ + key]; }

  void look() {
    const std::size_t last = rows_.size() - 1;
    if (dense_) {
      keys_ = visible_keys(last);  // the last row sees at least as many keys as any other
      return;
    }
    const int head = int(head_ % spec_.heads);
    keys_ = keys_seen(spec_, batch(), head, query(0), query(last) - query(0) + 1).end;
    hidden_.resize(rows_.size() * keys_);
    for (std::size_t r = 0; r < rows_.size(); ++r)
      for (int64_t key = 0; key < keys_; ++key)
        hidden_[r * keys_ + key] = !sees(spec_, batch(), head, query(r), int(key));
  }

  Pair pair_of(std::size_t r, int64_t key, int64_t own) const {
    return {batch(),   int(head_ % spec_.heads),
            query(r),  int(key),
            key - own, sequence_of(spec_, batch(), query(r))};
  }

  /// Computes S = Q K^T, unscaled. Keys that a row does not see are never read.
  void multiply_by_keys() {
    for (int64_t first = 0; first < keys_; first += kTileKeys) {
      // Transposed, so that the innermost loop runs over keys, whose sums do not depend on each other.
      for (int64_t j = 0; j < std::min<int64_t>(kTileKeys, keys_ - first); ++j)
        for (int64_t c = 0; c < dims_; ++c)
          tile_[c * kTileKeys + j] = inputs_.k[(first_key_ + first + j) * dims_ + c];
      with_widest_vectors([&]<typename>() __attribute__((always_inline)) {
        for (std::size_t r = 0; r < rows_.size(); ++r) {
          const float* const q = &inputs_.q[rows_[r] * dims_];
          Sum* const s = &scores_[r * stride_ + first];
          for (int64_t c = 0; c < dims_; ++c)
            for (int j = 0; j < kTileKeys; ++j) s[j] += Sum(q[c]) * tile_[c * kTileKeys + j];
        }
      });
    }
  }

  /// Computes P from S, and the log-sum-exp.
  template <typename StoreScore, typename StoreProbability>
  void softmax(std::size_t r, StoreScore store_score, StoreProbability store_probability, bool sums_stored) {
    const std::span<Sum> s(scores_.data() + r * stride_, visible_keys(r));
    constexpr Sum kNothing = -std::numeric_limits<Sum>::infinity();
    const int64_t own = own_key(spec_, batch(), query(r));
    std::vector<Sum> sinks;
    for (const Definition* feature : having(&Definition::sink, spec_))
      sinks.push_back(feature->sink(spec_, int(head_ % spec_.heads)));
    Sum row_max = sinks.empty() ? kNothing : std::ranges::max(sinks);
    for (std::size_t j = 0; j < s.size(); ++j) {
      if (is_hidden(r, j)) {
        s[j] = kNothing;
        continue;
      }
      ++seen[r];
      Sum score = Sum(spec_.scale) * s[j];
      for (const auto change : changes_) score = change(spec_, pair_of(r, int64_t(j), own), score).score;
      s[j] = store_score(score);
      row_max = std::max(row_max, s[j]);
    }
    lse[r] = row_max;
    if (seen[r] == 0) {
      std::ranges::fill(s, Sum(0));
      return;
    }
    Sum row_sum = 0, squares = 0;
    for (const Sum sink : sinks) row_sum += std::exp(sink - row_max);
    for (Sum& p : s) {
      const Sum size = std::isinf(p) ? 0 : std::max(Sum(1), std::abs(p));
      row_sum += p = std::exp(p - row_max);
      squares += p * size * p * size;
    }
    Sum stored = 0;
    for (Sum& p : s) stored += p = store_probability(p, row_sum);
    if (sums_stored) lse[r] += std::log(stored);
    lse_scale[r] = std::sqrt(squares) / row_sum;
    lse[r] += std::log(row_sum);
    for (const Definition* feature : having(&Definition::kept, spec_))
      for (std::size_t j = 0; j < s.size(); ++j)
        s[j] *= Sum(feature->kept(spec_, pair_of(r, int64_t(j), own)));
  }

  /// Returns a row of V; for latent attention, the leading columns of the key.
  const float* value_row(int64_t row) const {
    return is_stored(spec_, TensorId::v) ? &inputs_.v[row * value_dims_] : &inputs_.k[row * dims_];
  }

  /// Computes O = P V; 0 for a row that sees no key.
  void multiply_by_values() {
    for (int64_t first = 0; first < keys_; first += kTileKeys) {
      const int64_t count = std::min<int64_t>(kTileKeys, keys_ - first);
      for (int64_t j = 0; j < count; ++j)
        std::copy_n(value_row(first_key_ + first + j), value_dims_, &tile_[j * value_dims_]);
      with_widest_vectors([&]<typename>() __attribute__((always_inline)) {
        for (std::size_t r = 0; r < rows_.size(); ++r) {
          const Sum* const p = &scores_[r * stride_ + first];
          const int64_t visible = std::min(count, visible_keys(r) - first);
          for (int64_t j = 0; j < visible; ++j) {
            if (is_hidden(r, first + j)) continue;  // its values may be NaN
            int64_t c = 0;
            for (; c + kLanes <= value_dims_; c += kLanes)
              for (int lane = 0; lane < kLanes; ++lane)
                o[r * value_dims_ + c + lane] += p[j] * tile_[j * value_dims_ + c + lane];
            for (; c < value_dims_; ++c) o[r * value_dims_ + c] += p[j] * tile_[j * value_dims_ + c];
          }
        }
      });
    }
  }

  const Spec& spec_;
  const Inputs& inputs_;
  const RowSpan rows_;
  const int64_t dims_, value_dims_;
  const int64_t head_ = rows_[0] / spec_.seqlen_q;  // counted through the batch, like the key head
  const bool dense_ = spec_.visibility.is_full() || spec_.causal();  // each row sees its leading keys
  std::vector<unsigned char> hidden_;  // [rows, keys_], if not dense: 1 where a row does not see a key
  int64_t keys_;                       // number of keys that the block sees
  int64_t stride_;                     // number of keys, rounded up to whole tiles
  int64_t first_key_;                  // row of K and V
  std::vector<Changed<Sum> (*)(const Spec&, const Pair&, Sum)> changes_;
  std::vector<Sum> scores_;  // [rows, stride]: S, then P
  std::vector<Sum> tile_;    // keys [head_dim, kTileKeys], then values [kTileKeys, value_dim]
};

/// Rounds a score as a store to memory would. f16 ends at 65504; beyond that, bf16 stores the score.
template <typename T>
float stored_score(float score) {
  const float stored = to_float(from_float<T>(score));
  return std::isinf(stored) ? to_float(to_bf16(score)) : stored;
}

/// Computes unfused attention: S and P go through memory in the inputs' type, and O is rounded.
RowBlock<float> plain_attention(const Spec& spec, const Inputs& inputs, RowSpan rows) {
  RowBlock<float> plain(spec, inputs, rows);
  if (spec.dtype == DType::e4m3) {
    // Scores exceed e4m3's range. p is rounded before the division: most quotients would be rounded to 0.
    plain.run([](float score) { return to_float(to_bf16(score)); },
              [](float p, float row_sum) { return to_float(to_e4m3(p)) / row_sum; }, true);
  } else {
    with_host_type(spec.dtype, [&]<typename T>(T) {
      plain.run(stored_score<T>, [](float p, float row_sum) { return to_float(from_float<T>(p / row_sum)); });
    });
  }
  round_to(output_type(spec.dtype), plain.o);
  return plain;
}

/// Splits ascending rows into short runs that belong to one head.
std::vector<RowSpan> split_into_blocks(const Sizes& sizes, RowSpan rows) {
  std::vector<RowSpan> blocks;
  while (!rows.empty()) {
    const int64_t end_of_head = (rows.front() / sizes.seqlen_q + 1) * sizes.seqlen_q;
    std::size_t count = 1;
    while (count < rows.size() && count < kBlockRows && rows[count] < end_of_head) ++count;
    blocks.push_back(rows.first(count));
    rows = rows.subspan(count);
  }
  return blocks;
}

std::vector<int64_t> all(int64_t rows) {
  std::vector<int64_t> numbers(rows);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

/// Returns `count` of `total` rows, with n rows per head; all rows if there are no more.
std::vector<int64_t> sample(int64_t total, int64_t n, int64_t count, uint64_t seed) {
  if (total <= count) return all(total);
  std::set<int64_t> rows;
  for (int64_t corner : {int64_t(0), n - 1, total - n, total - 1})
    if (int64_t(rows.size()) < count) rows.insert(corner);
  for (uint64_t draw = 0; int64_t(rows.size()) < count; ++draw)
    rows.insert(int64_t(random_bits(seed, draw) % uint64_t(total)));
  return {rows.begin(), rows.end()};
}

}  // namespace

std::vector<int64_t> all_rows(const Sizes& sizes) { return all(sizes.q_rows()); }
std::vector<int64_t> all_key_rows(const Sizes& sizes) { return all(sizes.k_rows()); }

std::vector<int64_t> sample_rows(const Sizes& sizes, int64_t count, uint64_t seed) {
  return sample(sizes.q_rows(), sizes.seqlen_q, count, seed);
}

std::vector<int64_t> sample_key_rows(const Sizes& sizes, int64_t count, uint64_t seed) {
  return sample(sizes.k_rows(), sizes.seqlen_k, count, seed);
}

Reference make_reference(const Spec& spec, const Inputs& inputs, std::vector<int64_t> rows,
                         const Progress& progress) {
  validate(spec);
  for (const Definition* feature : having(&Definition::removed, spec)) {
    const auto [plain, plain_inputs] = feature->removed(spec, inputs);
    return make_reference(plain, plain_inputs, std::move(rows), progress);
  }
  Reference reference;
  reference.rows = std::move(rows);
  const int64_t columns = spec.value_dim;
  reference.o.resize(reference.rows.size() * columns);
  reference.plain_o.resize(reference.o.size());
  reference.lse.resize(reference.rows.size());

  const std::size_t count = reference.rows.size();
  std::vector<double> o_error(count), o_scale(count), o_floor(count);
  std::vector<double> lse_error(count), lse_scale(count), lse_floor(count);
  std::vector<unsigned char> is_value(count);  // whether O is a row of V
  const double floor = spec.dtype == DType::e4m3 ? kByLine : floor_for(output_type(spec.dtype));
  const bool gives_values = (spec.dtype == DType::f16 || spec.dtype == DType::bf16) &&
                            having(&Definition::kept, spec).empty() &&
                            having(&Definition::sink, spec).empty();

  const std::vector<RowSpan> blocks = split_into_blocks(spec, reference.rows);
  std::mutex mutex;  // protects blocks_done and progress
  int64_t blocks_done = 0;
  parallel_for(int64_t(blocks.size()), [&](int64_t i) {
    RowBlock<double> exact(spec, inputs, blocks[i]);
    exact.run([](double score) { return score; }, [](double p, double row_sum) { return p / row_sum; });
    const RowBlock<float> plain = plain_attention(spec, inputs, blocks[i]);

    const int64_t first_row = blocks[i].data() - reference.rows.data();
    std::ranges::copy(exact.o, reference.o.begin() + first_row * columns);
    std::ranges::copy(plain.o, reference.plain_o.begin() + first_row * columns);
    std::ranges::copy(exact.lse, reference.lse.begin() + first_row);
    for (std::size_t r = 0; r < blocks[i].size(); ++r) {
      const auto row_of = [&](const auto& o) { return std::span(o).subspan(r * columns, columns); };
      const std::size_t row = first_row + r;
      o_error[row] = largest_error(row_of(exact.o), row_of(plain.o));
      o_scale[row] = largest_value(row_of(exact.o));
      o_floor[row] = floor * o_scale[row];
      is_value[row] = exact.seen[r] == 1 && gives_values;
      lse_error[row] = largest_error({&exact.lse[r], 1}, {&plain.lse[r], 1});
      lse_scale[row] = exact.lse_scale[r];
      lse_floor[row] = std::isinf(exact.lse[r]) ? 0 : 0x1p-20 * std::max(1.0, std::abs(exact.lse[r]));
      if (spec.dtype == DType::e4m3) lse_floor[row] += kRoundedSum * std::min(1.0, exact.lse_scale[r]);
    }
    const std::lock_guard lock(mutex);
    if (progress) progress(double(++blocks_done) / double(blocks.size()));
  });
  reference.o_bound = bounds_of(o_error, o_scale, o_floor);
  for (std::size_t row = 0; row < count; ++row)
    if (is_value[row]) reference.o_bound[row] = 0;
  reference.lse_bound = bounds_of(lse_error, lse_scale, lse_floor);
  return reference;
}

}  // namespace flashbook

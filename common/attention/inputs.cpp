#include "common/attention/inputs.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/attention/parallel.h"
#include "common/attention/random.h"
#include "common/features/pages/pages.h"

namespace flashbook {
namespace {

/// Returns a sample of N(0, 1): the sum of 256 coin tosses, plus a uniform number to fill its steps of 1/8.
/// The fourth moment is 0.8 % below a normal's. No logarithm or cosine makes it differ between machines.
float normal(uint64_t seed, uint64_t index) {
  int heads = 0;
  for (uint64_t draw = 0; draw < 4; ++draw) heads += std::popcount(random_bits(seed, 5 * index + draw));
  const int fill = int(random_bits(seed, 5 * index + 4) >> 48);  // 0 ... 65535
  // The mean is 128 heads and the standard deviation 8. The sum is below 2^24, so it is exact as a float.
  return float((heads - 128) * 65536 + fill - 32768) * 0x1p-19f;
}

/// Returns a sample of N(0, 1) + N(0, 100) * Bernoulli(0.001), exact in double, so all machines agree.
float normal_with_outliers(uint64_t seed, uint64_t index) {
  const bool outlier = random_bits(random_bits(seed, 0), index) < UINT64_MAX / 1000;
  return float(normal(seed, index) + (outlier ? 10.0 * normal(random_bits(seed, 1), index) : 0.0));
}

constexpr float kChannelOutlier = 10;  // added to every element of a large channel
constexpr int kChannelsPerOutlier = 32;

float random_sign(uint64_t seed, uint64_t index) { return random_bits(seed, index) >> 63 ? 1.0f : -1.0f; }

/// Returns the element size at which a query and a key with equal signs have a scaled score of 11000.
float element_for_large_score(const Sizes& sizes) {
  return float(std::sqrt(11000 / (double(sizes.scale) * sizes.head_dim)));
}

/// Returns one tensor: `value(index)` for every element, rounded to its type. e4m3 is rounded once its scales
/// are known.
template <typename Value>
std::vector<float> make_tensor(DType type, int64_t elements, Value value) {
  constexpr int64_t kBlock = 1 << 14;
  // Values that f16 would round to infinity become its largest value.
  const float largest = type == DType::f16 ? 65504.0f : INFINITY;
  std::vector<float> values(elements);
  parallel_for(ceil_div(elements, kBlock), [&](int64_t block) {
    const int64_t begin = block * kBlock, end = std::min(elements, begin + kBlock);
    for (int64_t i = begin; i < end; ++i) values[i] = std::clamp(value(i), -largest, largest);
    if (type != DType::e4m3) round_to(type, std::span(values).subspan(begin, end - begin));
  });
  return values;
}

/// Fills Q, K and V with `value(seed, index)`, where each tensor has its own seed.
template <typename Value>
Inputs make_alike(const Sizes& sizes, uint64_t seed, Value value) {
  const auto tensor = [&](int number, int64_t elements) {
    const uint64_t tensor_seed = random_bits(seed, number);
    return make_tensor(sizes.dtype, elements, [=](int64_t i) { return value(tensor_seed, i); });
  };
  return {tensor(0, sizes.q_elements()), tensor(1, sizes.k_elements()), tensor(2, sizes.v_elements())};
}

/// In models, large values of Q and K are confined to a few channels of a head, the same in both, and have a
/// single sign there (Jin et al., arXiv 2502.01563). One of every 32 columns is such a channel; query heads
/// have the same channels as the key head that they read.
Inputs make_channels(const Spec& spec, uint64_t seed) {
  Inputs inputs = make_alike(spec, seed, normal);
  const auto tensor = [&](int number, int64_t elements, int64_t elements_of_kv_head) {
    return make_tensor(
        spec.dtype, elements,
        [=, &spec, tensor_seed = random_bits(seed, number), pattern = random_bits(seed, 3)](int64_t i) {
          const int column = int(i % spec.head_dim);
          const int64_t group =
              i / elements_of_kv_head * (spec.head_dim / kChannelsPerOutlier) + column / kChannelsPerOutlier;
          const bool large =
              int(random_bits(pattern, group) % kChannelsPerOutlier) == column % kChannelsPerOutlier;
          const float sign = random_sign(tensor_seed, group);
          return normal(tensor_seed, i) + (large ? sign * kChannelOutlier : 0.0f);
        });
  };
  inputs.q = tensor(0, spec.q_elements(), spec.q_elements() / (int64_t(spec.batch) * spec.kv_heads));
  inputs.k = tensor(1, spec.k_elements(), spec.k_elements() / (int64_t(spec.batch) * spec.kv_heads));
  return inputs;
}

/// Makes every row of Q and K a pattern of signs or its opposite, plus N(0, 1): scores are near +-11000.
Inputs make_large_scores(const Sizes& sizes, uint64_t seed) {
  const uint64_t pattern = random_bits(seed, 3);
  const float size = element_for_large_score(sizes);
  Inputs inputs = make_alike(sizes, seed, [&](uint64_t tensor_seed, int64_t i) {
    const float row_sign = random_sign(random_bits(tensor_seed, 0), i / sizes.head_dim);
    return row_sign * random_sign(pattern, i % sizes.head_dim) * size + normal(tensor_seed, i);
  });
  inputs.v = make_alike(sizes, seed, normal).v;
  return inputs;
}

/// Returns a random key among those that the query of a row sees; 0 if it sees none.
int64_t visible_key(const Spec& spec, int64_t row, uint64_t random) {
  const int query = int(row % spec.seqlen_q), head = int(row / spec.seqlen_q % spec.heads);
  if (spec.visibility.is_full() || spec.causal())
    return int64_t(random % uint64_t(std::max(1, spec.visible_keys(query))));
  const int batch = int(row / spec.seqlen_q / spec.heads);
  const KeyRange range = keys_seen(spec, batch, head, query, 1);
  std::vector<int> seen;
  for (int key = range.begin; key < range.end; ++key)
    if (sees(spec, batch, head, query, key)) seen.push_back(key);
  return seen.empty() ? 0 : seen[random % seen.size()];
}

/// Every key has its own pattern of signs, and each query repeats that of a key that it sees. Their score is
/// 11000; that of any other key is lower by 22000 / head_dim for every sign that differs, some 32 of 64.
Inputs make_one_hot(const Spec& spec, uint64_t seed) {
  const float size = element_for_large_score(spec);
  Inputs inputs = make_alike(spec, seed, normal);
  inputs.k = make_tensor(spec.dtype, spec.k_elements(), [pattern = random_bits(seed, 3), size](int64_t i) {
    return random_sign(pattern, i) * size;
  });
  std::vector<int64_t> match(spec.q_rows());  // the row of K that a query repeats
  for (int64_t row = 0; row < spec.q_rows(); ++row) {
    const int64_t kv_head = row / spec.seqlen_q / (spec.heads / spec.kv_heads);  // counted through the batch
    match[row] = kv_head * spec.seqlen_k + visible_key(spec, row, random_bits(random_bits(seed, 4), row));
  }
  inputs.q = make_tensor(spec.dtype, spec.q_elements(), [&](int64_t i) {
    return inputs.k[match[i / spec.head_dim] * spec.head_dim + i % spec.head_dim];
  });
  return inputs;
}

/// Rows of Q are N(0, 1) plus or minus a pattern of signs, alternately. K adds the pattern with a factor that
/// grows along the keys from -1 to 1 times its size.
Inputs make_drifting(const Spec& spec, uint64_t seed) {
  constexpr double kRise = 20;  // the total rise of scores from the first key to the last
  const uint64_t pattern = random_bits(seed, 3);
  const double size = std::sqrt(kRise / 2 / std::sqrt(double(spec.head_dim)));
  const auto tensor = [&](int number, int64_t elements, int64_t rows_of_kv_head, auto size_of_row) {
    return make_tensor(spec.dtype, elements, [=, &spec, tensor_seed = random_bits(seed, number)](int64_t i) {
      const int64_t row = i / spec.head_dim, kv_head = row / rows_of_kv_head;
      const float sign = random_sign(pattern, kv_head * spec.head_dim + i % spec.head_dim);
      return normal(tensor_seed, i) + sign * float(size_of_row(row));
    });
  };
  Inputs inputs;
  inputs.q = tensor(0, spec.q_elements(), int64_t(spec.heads / spec.kv_heads) * spec.seqlen_q,
                    [=](int64_t row) { return row % 2 == 0 ? size : -size; });
  inputs.k = tensor(1, spec.k_elements(), spec.seqlen_k, [=, &spec](int64_t row) {
    const double last = std::max(1, spec.seqlen_k - 1);
    return size * (2 * double(row % spec.seqlen_k) / last - 1);
  });
  inputs.v = tensor(2, spec.v_elements(), spec.seqlen_k, [](int64_t) { return 0; });
  return inputs;
}

Inputs make_unscaled(const Spec& spec, InputKind kind, uint64_t seed) {
  if (kind == InputKind::channels) return make_channels(spec, seed);
  if (kind == InputKind::large_scores) return make_large_scores(spec, seed);
  if (kind == InputKind::one_hot) return make_one_hot(spec, seed);
  if (kind == InputKind::drifting) return make_drifting(spec, seed);
  if (kind == InputKind::outliers) return make_alike(spec, seed, normal_with_outliers);
  if (kind == InputKind::normal) return make_alike(spec, seed, normal);
  return make_alike(spec, seed, [](uint64_t tensor_seed, int64_t) { return normal(tensor_seed, 0); });
}

}  // namespace

Inputs make_inputs(const Spec& spec, InputKind kind, uint64_t seed) {
  if (spec.paging.rows > 0) {
    Inputs inputs = scatter_pages(spec, make_inputs(without_pages(spec), kind, seed));
    if (spec.e4m3.cache) round_inputs(spec, inputs);  // pages have different scales
    return inputs;
  }
  Inputs inputs = make_unscaled(spec, kind, seed);
  if (!is_stored(spec, TensorId::v)) inputs.v.clear();
  if (spec.dtype == DType::e4m3 || spec.e4m3.cache) round_inputs(spec, inputs);
  return inputs;
}

double largest_score(const Sizes& sizes, const Inputs& inputs) {
  const auto longest_row = [&](const std::vector<float>& values) {
    constexpr int64_t kRows = 1024;  // unit of work that a core receives at a time
    std::vector<double> squares(values.size() / sizes.head_dim);
    parallel_for_blocks(int64_t(squares.size()), kRows, [&](int64_t row) {
      const float* const of_row = &values[row * sizes.head_dim];
      double sum = 0;
      for (int c = 0; c < sizes.head_dim; ++c) sum += double(of_row[c]) * of_row[c];
      if (sum > 0) squares[row] = sum;  // leaves out the NaN in rows of pages without a key
    });
    return squares.empty() ? 0 : std::sqrt(std::ranges::max(squares));
  };
  return longest_row(inputs.q) * longest_row(inputs.k) * std::max(1.0, double(sizes.scale));
}

}  // namespace flashbook

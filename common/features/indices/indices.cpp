#include "common/features/indices/indices.h"

#include <cmath>
#include <numeric>
#include <set>
#include <span>

#include "common/attention/random.h"
#include "common/features/helpers.h"
#include "common/features/indices/indices_c.h"

namespace flashbook {
namespace {

std::span<const int> list_of(const Spec& spec, int batch, int query) {
  const Indices& indices = spec.visibility.indices;
  const int64_t list = int64_t(batch) * spec.seqlen_q + query;
  return std::span<const int>(indices.keys)
      .subspan(std::size_t(list * indices.count), std::size_t(indices.count));
}

/// Returns the different keys in a list.
std::set<int> keys_in(std::span<const int> list) {
  std::set<int> keys(list.begin(), list.end());
  keys.erase(-1);
  return keys;
}

/// A key that is listed n times has n times the weight: log(n) is added to its score.
template <typename Sum>
Changed<Sum> repeated(const Spec& spec, const Pair& pair, Sum score) {
  const auto times = std::ranges::count(list_of(spec, pair.batch, pair.query), pair.key);
  return {times > 1 ? score + Sum(std::log(double(times))) : score};
}

}  // namespace

Spec with_indices(Spec spec, int count, uint64_t seed) {
  Indices& indices = spec.visibility.indices = {.count = std::min(count, spec.seqlen_k)};
  std::vector<int> keys(std::size_t(spec.seqlen_k));
  std::iota(keys.begin(), keys.end(), 0);
  for (int64_t list = 0; list < int64_t(spec.batch) * spec.seqlen_q; ++list)
    for (int i = 0; i < indices.count; ++i) {
      const uint64_t bits = random_bits(seed, uint64_t(list * indices.count + i));
      std::swap(keys[std::size_t(i)], keys[std::size_t(i + int(bits % uint64_t(spec.seqlen_k - i)))]);
      indices.keys.push_back(keys[std::size_t(i)]);
    }
  return spec;
}

namespace features {

constexpr Mask kIndices = {
    .hides = [](const Spec& spec, int batch, int, int query,
                int key) { return std::ranges::count(list_of(spec, batch, query), key) == 0; },
    .pairs =
        [](const Spec& spec, int batch, int) {
          double pairs = 0;
          for (int query = 0; query < spec.seqlen_q; ++query)
            pairs += double(keys_in(list_of(spec, batch, query)).size());
          return pairs;
        },
};

const Definition indices = {
    .plural = "lists of keys",
    .is_in = [](const Spec& spec) { return spec.visibility.indices.count != 0; },
    .give =
        [](Spec& spec, std::mt19937& random) {
          spec = with_indices(std::move(spec), between(random, 1, spec.seqlen_k), random());
          Indices& lists = spec.visibility.indices;
          for (std::size_t i = 1; i < lists.keys.size(); ++i)
            if (one_in(random, 6)) lists.keys[i] = one_in(random, 2) ? -1 : lists.keys[i - 1];
          std::fill_n(lists.keys.begin(), lists.count, -1);  // the first query sees no key
        },
    .validate =
        [](const Spec& spec) {
          const Indices& lists = spec.visibility.indices;
          require(lists.count > 0, "lists have ", lists.count, " keys: give at least 1");
          require_count("indices", lists.keys.size(), int64_t(spec.batch) * spec.seqlen_q * lists.count,
                        "as many for each query as a list has");
          for (const int key : lists.keys)
            require(key >= -1 && key < spec.seqlen_k, "indices has key ", key, ": give 0 to ",
                    spec.seqlen_k - 1, ", or -1 for none");
        },
    .describe = [](const Spec& spec) { return concat("lists of ", spec.visibility.indices.count, " keys"); },
    .tables = [](const Spec& spec) -> Tables {
      return {table(TableId::indices, "indices", spec.visibility.indices.keys)};
    },
    .options = {{.name = "--indices",
                 .type = "N",
                 .help = "Each query attends to N random keys",
                 .read =
                     [](const Value& value, Request& to) {
                       const int count = value.count();
                       require(count <= to.spec.seqlen_k, "--indices is ", count, ": give at most ",
                               to.spec.seqlen_k, ", the number of keys");
                       to.spec = with_indices(to.spec, count, to.seed);
                     }}},
    .mask = &kIndices,
    .by_batch = true,
    .score = repeated<double>,
    .score_in_float = repeated<float>,
    .unread_keys =
        [](const Spec& spec) {
          const Indices& lists = spec.visibility.indices;
          if (lists.keys.is_on_device()) return 0.0;
          const auto keys = std::size_t(spec.seqlen_k),
                     of_batch = std::size_t(spec.seqlen_q) * std::size_t(lists.count);
          std::vector<bool> listed(std::size_t(spec.batch) * keys);
          for (std::size_t i = 0; i < lists.keys.size(); ++i)
            if (lists.keys[i] >= 0) listed[i / of_batch * keys + std::size_t(lists.keys[i])] = true;
          return double(std::ranges::count(listed, false));
        },
    .in_c = c_struct<FlashbookIndices, FLASHBOOK_INDICES>(
        [](const auto& from, Spec& to) {
          require_positive("count", from.count);
          to.visibility.indices = {from.count, on_device<int>(double(to.batch) * to.seqlen_q * from.count)};
        },
        {{"indices", place_of(TableId::indices)}}),
};

}  // namespace features
}  // namespace flashbook

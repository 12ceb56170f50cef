#include <cmath>

#include "common/features/helpers.h"

namespace flashbook::features {
namespace {

/// There is one slope per head, or per head of each sequence.
bool has_slopes_by_sequence(const Shape& shape) {
  return shape.score.alibi.size() > std::size_t(shape.heads);
}

template <typename Sum>
Changed<Sum> sloped(const Shape& shape, const Pair& pair, Sum score) {
  const int64_t row = has_slopes_by_sequence(shape) ? pair.sequence : 0;
  const float slope = shape.score.alibi[std::size_t(row * shape.heads + pair.head)];
  return {score - slope * Sum(std::abs(pair.distance))};
}

}  // namespace

const Definition alibi = {
    .plural = "ALiBi slopes",
    .is_in = [](const Shape& shape) { return !shape.score.alibi.empty(); },
    .give =
        [](Shape& shape, std::mt19937& random) {
          const int64_t rows = one_in(random, 2) ? 1 : sequences_of(shape);
          shape.score.alibi.resize(std::size_t(rows * shape.heads));
          for (float& slope : shape.score.alibi) slope = float(between(random, 0, 16)) / 16;
        },
    .validate =
        [](const Shape& shape) {
          const int64_t slopes = int64_t(shape.score.alibi.size()), every = sequences_of(shape) * shape.heads;
          require(slopes == shape.heads || slopes == every, "there are ", slopes, " slopes: give ",
                  shape.heads, ", one per head, or ", every, ", one per head of each sequence");
          for (const float slope : shape.score.alibi)
            require(std::isfinite(slope), "a slope is not finite: give finite slopes");
        },
    .describe =
        [](const Shape& shape) {
          return concat("ALiBi", (has_slopes_by_sequence(shape) ? " by sequence" : ""));
        },
    .tables = [](const Shape& shape) -> Tables {
      return {table(TableId::slopes, "slopes", shape.score.alibi)};
    },
    .options = {{.name = "--alibi",
                 .help = "Subtract slope * distance from the scores, with slopes 2^(-8 (h + 1) / heads)",
                 .read =
                     [](const Value&, Request& to) {
                       for (int head = 1; head <= to.shape.heads; ++head)
                         to.shape.score.alibi.push_back(
                             std::exp2(-8.0f * float(head) / float(to.shape.heads)));
                     }}},
    .score = sloped<double>,
    .score_in_float = sloped<float>,
};

}  // namespace flashbook::features

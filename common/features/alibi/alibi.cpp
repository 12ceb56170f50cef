#include <cmath>

#include "common/features/alibi/alibi_c.h"
#include "common/features/helpers.h"

namespace flashbook::features {
namespace {

/// Returns whether slopes differ by sequence: otherwise there is one per head.
bool has_slopes_by_sequence(const Spec& spec) { return spec.score.alibi.size() > std::size_t(spec.heads); }

template <typename Sum>
Changed<Sum> sloped(const Spec& spec, const Pair& pair, Sum score) {
  const int64_t row = has_slopes_by_sequence(spec) ? pair.sequence : 0;
  const float slope = spec.score.alibi[std::size_t(row * spec.heads + pair.head)];
  return {score - slope * Sum(std::abs(pair.distance))};
}

}  // namespace

const Definition alibi = {
    .plural = "ALiBi slopes",
    .is_in = [](const Spec& spec) { return !spec.score.alibi.empty(); },
    .give =
        [](Spec& spec, std::mt19937& random) {
          const int64_t rows = one_in(random, 2) ? 1 : sequences_of(spec);
          spec.score.alibi.resize(std::size_t(rows * spec.heads));
          for (float& slope : spec.score.alibi) slope = float(between(random, 0, 16)) / 16;
        },
    .validate =
        [](const Spec& spec) {
          const int64_t slopes = int64_t(spec.score.alibi.size()), every = sequences_of(spec) * spec.heads;
          require(slopes == spec.heads || slopes == every, "there are ", slopes, " slopes: give ", spec.heads,
                  ", one per head, or ", every, ", one per head of each sequence");
          for (const float slope : spec.score.alibi)
            require(std::isfinite(slope), "a slope is not finite: give finite slopes");
        },
    .describe =
        [](const Spec& spec) {
          return concat("ALiBi", (has_slopes_by_sequence(spec) ? " by sequence" : ""));
        },
    .tables = [](const Spec& spec) -> Tables { return {table(TableId::slopes, "slopes", spec.score.alibi)}; },
    .options = {{.name = "--alibi",
                 .help = "Subtract slope * distance from the scores, with slopes 2^(-8 (h + 1) / heads)",
                 .read =
                     [](const Value&, Request& to) {
                       for (int head = 1; head <= to.spec.heads; ++head)
                         to.spec.score.alibi.push_back(std::exp2(-8.0f * float(head) / float(to.spec.heads)));
                     }}},
    .score = sloped<double>,
    .score_in_float = sloped<float>,
    .in_c = c_struct<FlashbookAlibi, FLASHBOOK_ALIBI>(
        [](const auto& from, Spec& to) {
          require(from.sequences >= 0, "sequences is ", from.sequences,
                  ": give the rows of slopes, or 0 if all sequences share one");
          to.score.alibi = on_device<float>(double(to.heads) * std::max(1, from.sequences));
        },
        {{"slopes", place_of(TableId::slopes)}}),
};

}  // namespace flashbook::features

#include <cmath>

#include "common/features/helpers.h"
#include "common/features/softcap/softcap_c.h"

namespace flashbook::features {
namespace {

template <typename Sum>
Changed<Sum> capped(const Spec& spec, const Pair&, Sum score) {
  const Sum cap = spec.score.softcap, part = std::tanh(score / cap);
  return {cap * part, 1 - part * part};
}

}  // namespace

const Definition softcap = {
    .plural = "softcaps",
    .is_in = [](const Spec& spec) { return spec.score.softcap != 0; },
    .give = [](Spec& spec, std::mt19937& random) { spec.score.softcap = float(between(random, 2, 30)); },
    .validate =
        [](const Spec& spec) {
          require(spec.score.softcap >= 0 && !std::isinf(spec.score.softcap),
                  "the softcap is not a finite number of at least 0: give one, or 0 for none");
        },
    .describe = [](const Spec& spec) { return concat("softcap ", spec.score.softcap); },
    .options = {{.name = "--softcap",
                 .type = "X",
                 .help = "Scores s become X * tanh(s / X)",
                 .read = [](const Value& value, Request& to) { to.spec.score.softcap = value.real(); }}},
    .score = capped<double>,
    .score_in_float = capped<float>,
    .in_c = c_struct<FlashbookSoftcap, FLASHBOOK_SOFTCAP>(
        [](const auto& from, Spec& to) { to.score.softcap = from.softcap; }),
};

}  // namespace flashbook::features

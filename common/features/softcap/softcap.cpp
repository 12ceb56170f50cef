#include <cmath>

#include "common/features/helpers.h"

namespace flashbook::features {
namespace {

template <typename Sum>
Changed<Sum> capped(const Shape& shape, const Pair&, Sum score) {
  const Sum cap = shape.score.softcap, part = std::tanh(score / cap);
  return {cap * part, 1 - part * part};
}

}  // namespace

const Definition softcap = {
    .plural = "softcaps",
    .is_in = [](const Shape& shape) { return shape.score.softcap != 0; },
    .give = [](Shape& shape, std::mt19937& random) { shape.score.softcap = float(between(random, 2, 30)); },
    .validate =
        [](const Shape& shape) {
          require(shape.score.softcap >= 0 && !std::isinf(shape.score.softcap),
                  "the softcap is not a finite number of at least 0: give one, or 0 for none");
        },
    .describe = [](const Shape& shape) { return concat("softcap ", shape.score.softcap); },
    .options = {{.name = "--softcap",
                 .type = "X",
                 .help = "Scores s become X * tanh(s / X)",
                 .read = [](const Value& value, Request& to) { to.shape.score.softcap = value.real(); }}},
    .score = capped<double>,
    .score_in_float = capped<float>,
};

}  // namespace flashbook::features

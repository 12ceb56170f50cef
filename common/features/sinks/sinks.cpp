#include <cmath>
#include <limits>

#include "common/features/helpers.h"

namespace flashbook::features {

const Definition sinks = {
    .plural = "sink logits",
    .is_in = [](const Shape& shape) { return !shape.score.sinks.empty(); },
    .give =
        [](Shape& shape, std::mt19937& random) {
          shape.score.sinks.resize(std::size_t(shape.heads));
          for (float& sink : shape.score.sinks) sink = float(between(random, -8, 8)) / 4;
        },
    .validate =
        [](const Shape& shape) {
          const Array<float>& sinks = shape.score.sinks;
          require(int64_t(sinks.size()) == shape.heads, "there are ", sinks.size(), " sinks: give ",
                  shape.heads, ", one per head");
          for (const float sink : sinks)
            require(!std::isnan(sink) && sink != std::numeric_limits<float>::infinity(), "a sink is ", sink,
                    ": give finite ones, or -inf for none");
        },
    .describe = [](const Shape&) { return std::string("sinks"); },
    .tables = [](const Shape& shape) -> Tables {
      return {table(TableId::sinks, "sinks", shape.score.sinks)};
    },
    .options = {{.name = "--sinks",
                 .type = "X",
                 .help = "Give every head one more score, X, that belongs to no key",
                 .read =
                     [](const Value& value, Request& to) {
                       to.shape.score.sinks.assign(std::size_t(to.shape.heads), value.real());
                     }}},
    .sink = [](const Shape& shape, int head) { return shape.score.sinks[std::size_t(head)]; },
};

}  // namespace flashbook::features

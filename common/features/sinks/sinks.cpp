#include <cmath>
#include <limits>

#include "common/features/helpers.h"
#include "common/features/sinks/sinks_c.h"

namespace flashbook::features {

const Definition sinks = {
    .plural = "sink logits",
    .is_in = [](const Spec& spec) { return !spec.score.sinks.empty(); },
    .give =
        [](Spec& spec, std::mt19937& random) {
          spec.score.sinks.resize(std::size_t(spec.heads));
          for (float& sink : spec.score.sinks) sink = float(between(random, -8, 8)) / 4;
        },
    .validate =
        [](const Spec& spec) {
          const Array<float>& sinks = spec.score.sinks;
          require(int64_t(sinks.size()) == spec.heads, "there are ", sinks.size(), " sinks: give ",
                  spec.heads, ", one per head");
          for (const float sink : sinks)
            require(!std::isnan(sink) && sink != std::numeric_limits<float>::infinity(), "a sink is ", sink,
                    ": give finite ones, or -inf for none");
        },
    .describe = [](const Spec&) { return std::string("sinks"); },
    .tables = [](const Spec& spec) -> Tables { return {table(TableId::sinks, "sinks", spec.score.sinks)}; },
    .options = {{.name = "--sinks",
                 .type = "X",
                 .help = "Give every head one more score, X, that belongs to no key",
                 .read =
                     [](const Value& value, Request& to) {
                       to.spec.score.sinks.assign(std::size_t(to.spec.heads), value.real());
                     }}},
    .sink = [](const Spec& spec, int head) { return spec.score.sinks[std::size_t(head)]; },
    .in_c = c_struct<FlashbookSinks, FLASHBOOK_SINKS>(
        [](const auto&, Spec& to) { to.score.sinks = on_device<float>(to.heads); },
        {{"sink_logits", place_of(TableId::sinks)}}),
};

}  // namespace flashbook::features

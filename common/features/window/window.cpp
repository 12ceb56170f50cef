#include "common/features/window/window.h"

#include "common/features/helpers.h"
#include "common/features/window/ranges.h"
#include "common/features/window/window_c.h"

namespace flashbook::features {
const Definition causal = {
    .plural = "causal masks",
    .is_in =
        [](const Spec& spec) {
          return spec.visibility.window == Window{.right = 0, .sinks = spec.visibility.window.sinks};
        },
    .give = [](Spec& spec, std::mt19937&) { spec.visibility.window.right = 0; },
    .describe = [](const Spec&) { return std::string("causal"); },
    .options = {{.name = "--causal",
                 .help = "Query i sees keys up to i + seqlen_k - seqlen_q",
                 .read = [](const Value&, Request& to) { to.spec.visibility.window.right = 0; }}},
    .mask = &kRanges,
};

const Definition window = {
    .plural = "windows",
    .is_in =
        [](const Spec& spec) {
          return spec.visibility.window.left != -1 || spec.visibility.window.right > 0 ||
                 spec.visibility.window.right < -1;
        },
    .give =
        [](Spec& spec, std::mt19937& random) {
          spec.visibility.window.left = between(random, 0, 9);
          if (one_in(random, 2)) spec.visibility.window.right = between(random, 0, 5);
        },
    .validate =
        [](const Spec& spec) {
          require(spec.visibility.window.left >= -1 && spec.visibility.window.right >= -1,
                  "a window's side is below -1: give a number of keys, or -1 for all");
        },
    .describe =
        [](const Spec& spec) {
          const auto keys = [](int count) { return count < 0 ? "all" : std::to_string(count); };
          return concat("window of ", keys(spec.visibility.window.left), " keys before and ",
                        keys(spec.visibility.window.right), " after");
        },
    .options = {{.name = "--window",
                 .type = "N",
                 .help =
                     "A query sees the N keys before its own, and the N after it unless --causal is given",
                 .read =
                     [](const Value& value, Request& to) {
                       const int keys = value.text == "0" ? 0 : value.count();
                       to.spec.visibility.window.left = keys;
                       if (!to.given.contains("--causal")) to.spec.visibility.window.right = keys;
                     }}},
    .mask = &kRanges,
    .in_c = c_struct<FlashbookWindow, FLASHBOOK_WINDOW>([](const auto& from, Spec& to) {
      to.visibility.window = {from.left, from.right, from.sinks};
      to.visibility.prefix = from.prefix;
    }),
};

const Definition sink_keys = {
    .plural = "windows with sink keys",
    .is_in = [](const Spec& spec) { return spec.visibility.window.sinks != 0; },
    .give =
        [](Spec& spec, std::mt19937& random) {
          spec.visibility.window = {
              .left = between(random, 0, 9), .right = 0, .sinks = between(random, 1, 4)};
        },
    .validate =
        [](const Spec& spec) {
          require(spec.visibility.window.sinks >= 0, "the number of sinks is negative: give 0 or more");
        },
    .describe = [](const Spec& spec) { return concat(spec.visibility.window.sinks, " sinks"); },
    .mask = &kRanges,
};

const Definition prefix = {
    .plural = "prefixes",
    .is_in = [](const Spec& spec) { return spec.visibility.prefix != 0; },
    .give =
        [](Spec& spec, std::mt19937& random) {
          spec.visibility.window.right = 0, spec.visibility.prefix = between(random, 1, 12);
        },
    .validate =
        [](const Spec& spec) {
          require(spec.visibility.prefix >= 0, "the prefix is negative: give a number of keys");
        },
    .describe = [](const Spec& spec) { return concat("a prefix of ", spec.visibility.prefix); },
    .options = {{.name = "--prefix",
                 .type = "N",
                 .help = "Also attend to the leading N keys",
                 .read =
                     [](const Value& value, Request& to) {
                       require(to.spec.visibility.window != Window{},
                               "--prefix adds keys to what --causal or --window leaves visible: give one of "
                               "them as well");
                       to.spec.visibility.prefix = value.count();
                     }}},
    .mask = &kRanges,
};

}  // namespace flashbook::features

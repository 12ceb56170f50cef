#include "common/features/window/window.h"

#include "common/features/helpers.h"
#include "common/features/window/ranges.h"

namespace flashbook::features {
const Definition causal = {
    .plural = "causal masks",
    .is_in =
        [](const Shape& shape) {
          return shape.visibility.window == Window{.right = 0, .sinks = shape.visibility.window.sinks};
        },
    .give = [](Shape& shape, std::mt19937&) { shape.visibility.window.right = 0; },
    .describe = [](const Shape&) { return std::string("causal"); },
    .options = {{.name = "--causal",
                 .help = "Query i sees keys up to i + seqlen_k - seqlen_q",
                 .read = [](const Value&, Request& to) { to.shape.visibility.window.right = 0; }}},
    .mask = &kRanges,
};

const Definition window = {
    .plural = "windows",
    .is_in =
        [](const Shape& shape) {
          return shape.visibility.window.left != -1 || shape.visibility.window.right > 0 ||
                 shape.visibility.window.right < -1;
        },
    .give =
        [](Shape& shape, std::mt19937& random) {
          shape.visibility.window.left = between(random, 0, 9);
          if (one_in(random, 2)) shape.visibility.window.right = between(random, 0, 5);
        },
    .validate =
        [](const Shape& shape) {
          require(shape.visibility.window.left >= -1 && shape.visibility.window.right >= -1,
                  "a window's side is below -1: give a number of keys, or -1 for all");
        },
    .describe =
        [](const Shape& shape) {
          const auto keys = [](int count) { return count < 0 ? "all" : std::to_string(count); };
          return concat("window of ", keys(shape.visibility.window.left), " keys before and ",
                        keys(shape.visibility.window.right), " after");
        },
    .options = {{.name = "--window",
                 .type = "N",
                 .help =
                     "A query sees the N keys before its own, and the N after it unless --causal is given",
                 .read =
                     [](const Value& value, Request& to) {
                       const int keys = value.text == "0" ? 0 : value.count();
                       to.shape.visibility.window.left = keys;
                       if (!to.given.contains("--causal")) to.shape.visibility.window.right = keys;
                     }}},
    .mask = &kRanges,
};

const Definition sink_keys = {
    .plural = "windows with sink keys",
    .is_in = [](const Shape& shape) { return shape.visibility.window.sinks != 0; },
    .give =
        [](Shape& shape, std::mt19937& random) {
          shape.visibility.window = {
              .left = between(random, 0, 9), .right = 0, .sinks = between(random, 1, 4)};
        },
    .validate =
        [](const Shape& shape) {
          require(shape.visibility.window.sinks >= 0, "the number of sinks is negative: give 0 or more");
        },
    .describe = [](const Shape& shape) { return concat(shape.visibility.window.sinks, " sinks"); },
    .mask = &kRanges,
};

const Definition prefix = {
    .plural = "prefixes",
    .is_in = [](const Shape& shape) { return shape.visibility.prefix != 0; },
    .give =
        [](Shape& shape, std::mt19937& random) {
          shape.visibility.window.right = 0, shape.visibility.prefix = between(random, 1, 12);
        },
    .validate =
        [](const Shape& shape) {
          require(shape.visibility.prefix >= 0, "a prefix is below 0: give a number of keys");
        },
    .describe = [](const Shape& shape) { return concat("a prefix of ", shape.visibility.prefix); },
    .options = {{.name = "--prefix",
                 .type = "N",
                 .help = "Also attend to the leading N keys",
                 .read =
                     [](const Value& value, Request& to) {
                       require(to.shape.visibility.window != Window{},
                               "--prefix adds keys to what --causal or --window leaves visible: give one of "
                               "them as well");
                       to.shape.visibility.prefix = value.count();
                     }}},
    .mask = &kRanges,
};

}  // namespace flashbook::features

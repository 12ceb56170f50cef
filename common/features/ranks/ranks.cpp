#include "common/features/helpers.h"

namespace flashbook {

std::string name_of(TokenOrder order) {
  return order == TokenOrder::contiguous ? "contiguous" : order == TokenOrder::zigzag ? "zigzag" : "striped";
}

namespace features {

const Definition ranks = {
    .plural = "several GPUs",
    .cure = "use one GPU, and no token order",
    .is_in = [](const Spec& spec) { return spec.sharding.ranks != 1 || spec.sharding.order.has_value(); },
    .give = [](Spec& spec, std::mt19937&) { spec.sharding.ranks = 2; },
    .validate = [](const Spec& spec) { require_positive("--ranks", spec.sharding.ranks); },
    .describe =
        [](const Spec& spec) {
          const std::string order =
              spec.sharding.order ? concat(", ", name_of(*spec.sharding.order), " tokens") : "";
          return spec.sharding.ranks > 1 ? concat(spec.sharding.ranks, " ranks", order) : order.substr(2);
        },
    .group = "The shape",
    .options = {{.name = "--ranks",
                 .type = "N",
                 .help = "GPUs to divide the tokens among; any number in the simulator",
                 .read = [](const Value& value, Request& to) { to.spec.sharding.ranks = value.count(); }},
                {.name = "--order",
                 .type = "NAME",
                 .help =
                     "Which tokens each GPU holds: contiguous, zigzag or striped (default: the step's order)",
                 .read =
                     [](const Value& value, Request& to) {
                       to.spec.sharding.order =
                           value.one_of<TokenOrder>({{"contiguous", TokenOrder::contiguous},
                                                     {"zigzag", TokenOrder::zigzag},
                                                     {"striped", TokenOrder::striped}});
                     }}},
};

const Definition token_order = {
    .plural = "zigzag or striped tokens",
    .cure = "divide them contiguously",
    .is_in =
        [](const Spec& spec) {
          return spec.sharding.order.value_or(TokenOrder::contiguous) != TokenOrder::contiguous;
        },
    .give = [](Spec& spec,
               std::mt19937&) { spec.sharding.ranks = 2, spec.sharding.order = TokenOrder::striped; },
};

}  // namespace features
}  // namespace flashbook

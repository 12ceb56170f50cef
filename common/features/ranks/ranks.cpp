#include "common/features/helpers.h"

namespace flashbook {

std::string name_of(TokenOrder order) {
  return order == TokenOrder::contiguous ? "contiguous" : order == TokenOrder::zigzag ? "zigzag" : "striped";
}

namespace features {

const Definition ranks = {
    .plural = "several GPUs",
    .cure = "use one GPU, and no token order",
    .is_in = [](const Shape& shape) { return shape.ranks != 1 || shape.order.has_value(); },
    .give = [](Shape& shape, std::mt19937&) { shape.ranks = 2; },
    .validate = [](const Shape& shape) { require_positive("--ranks", shape.ranks); },
    .describe =
        [](const Shape& shape) {
          const std::string order = shape.order ? concat(", ", name_of(*shape.order), " tokens") : "";
          return shape.ranks > 1 ? concat(shape.ranks, " ranks", order) : order.substr(2);
        },
    .group = "The shape",
    .options = {{.name = "--ranks",
                 .type = "N",
                 .help = "GPUs to divide the tokens among; any number in the simulator. Under torchrun or "
                         "mpirun: the number of processes",
                 .read = [](const Value& value, Request& to) { to.shape.ranks = value.count(); }},
                {.name = "--order",
                 .type = "NAME",
                 .help =
                     "Which tokens each GPU holds: contiguous, zigzag or striped (default: the step's order)",
                 .read =
                     [](const Value& value, Request& to) {
                       to.shape.order = value.one_of<TokenOrder>({{"contiguous", TokenOrder::contiguous},
                                                                  {"zigzag", TokenOrder::zigzag},
                                                                  {"striped", TokenOrder::striped}});
                     }}},
};

const Definition token_order = {
    .plural = "zigzag or striped tokens",
    .cure = "divide them contiguously",
    .is_in =
        [](const Shape& shape) {
          return shape.order.value_or(TokenOrder::contiguous) != TokenOrder::contiguous;
        },
    .give = [](Shape& shape, std::mt19937&) { shape.ranks = 2, shape.order = TokenOrder::striped; },
};

}  // namespace features
}  // namespace flashbook

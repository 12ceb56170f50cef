#include "common/features/dropout/dropout.h"

#include "common/features/helpers.h"

namespace flashbook::features {

const Definition dropout = {
    .plural = "dropout",
    .cure = "give 0",
    .is_in = [](const Shape& shape) { return shape.score.dropout != 0; },
    .give =
        [](Shape& shape, std::mt19937& random) {
          shape.score.dropout = 0.1f, shape.score.seed = 0x123456789abcdef0 + random();
        },
    .validate =
        [](const Shape& shape) {
          require(shape.score.dropout >= 0 && shape.score.dropout < 1,
                  "the dropout is not from 0 to below 1: give a number in that range; 0 means none");
        },
    .describe = [](const Shape& shape) { return concat("dropout ", shape.score.dropout); },
    .options = {{.name = "--dropout",
                 .type = "P",
                 .help = "Fraction of the probabilities to drop (default: 0); --seed selects which",
                 .read =
                     [](const Value& value, Request& to) {
                       to.shape.score.dropout = value.real();
                       if (to.shape.score.dropout != 0) to.shape.score.seed = to.seed;
                     }}},
    .kept =
        [](const Shape& shape, const Pair& pair) {
          const Dropout dropout(shape.score.dropout, shape.score.seed);
          const Array<int>& first_key = shape.visibility.documents.first_key;
          const int first = first_key.empty() ? 0 : first_key[std::size_t(pair.sequence)];
          return dropout.keeps(pair.batch, pair.head, pair.query, pair.key - first)
                     ? 65536.0 / (65536 - dropout.threshold)
                     : 0.0;
        },
};

}  // namespace flashbook::features

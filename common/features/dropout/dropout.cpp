#include "common/features/dropout/dropout.h"

#include "common/features/dropout/dropout_c.h"
#include "common/features/helpers.h"

namespace flashbook::features {

const Definition dropout = {
    .plural = "dropout",
    .cure = "give 0",
    .is_in = [](const Spec& spec) { return spec.score.dropout != 0; },
    .give =
        [](Spec& spec, std::mt19937& random) {
          spec.score.dropout = 0.1f, spec.score.seed = 0x123456789abcdef0 + random();
        },
    .validate =
        [](const Spec& spec) {
          require(spec.score.dropout >= 0 && spec.score.dropout < 1,
                  "the dropout must be at least 0 and below 1: give such a number; 0 means none");
        },
    .describe = [](const Spec& spec) { return concat("dropout ", spec.score.dropout); },
    .options = {{.name = "--dropout",
                 .type = "P",
                 .help = "Fraction of the probabilities to drop (default: 0); --seed selects which",
                 .read =
                     [](const Value& value, Request& to) {
                       to.spec.score.dropout = value.real();
                       if (to.spec.score.dropout != 0) to.spec.score.seed = to.seed;
                     }}},
    .kept =
        [](const Spec& spec, const Pair& pair) {
          const Dropout dropout(spec.score.dropout, spec.score.seed);
          const Array<int>& first_key = spec.visibility.documents.first_key;
          const int first = first_key.empty() ? 0 : first_key[std::size_t(pair.sequence)];
          return dropout.keeps(pair.batch, pair.head, pair.query, pair.key - first)
                     ? 65536.0 / (65536 - dropout.threshold)
                     : 0.0;
        },
    .in_c = c_struct<FlashbookDropout, FLASHBOOK_DROPOUT>([](const auto& from, Spec& to) {
      to.score.dropout = from.dropout;
      if (from.dropout != 0) to.score.seed = from.seed;
    }),
};

}  // namespace flashbook::features

#include "common/features/batching/batching_c.h"
#include "common/features/helpers.h"

namespace flashbook::features {

const Definition packed_queries = {
    .plural = "packed queries against a cache",
    .cure = "give every sequence the same number of queries",
    .is_in = [](const Spec& spec) { return spec.batching.packed_queries != 0; },
    .give = [](Spec& spec, std::mt19937&) { spec.batching.packed_queries = spec.batch * spec.seqlen_q; },
    .validate =
        [](const Spec& spec) {
          require(spec.batching.packed_queries > 0, "there are ", spec.batching.packed_queries,
                  " packed queries: give at least 1");
        },
    .describe = [](const Spec& spec) { return concat(spec.batching.packed_queries, " queries packed"); },
    .removed = [](const Spec&, const Inputs&) -> std::pair<Spec, Inputs> {
      throw InputError("the oracle does not support packed queries: compare each sequence on its own");
    },
    .has_gradient = false,
    .in_c = c_struct<FlashbookPackedQueries, FLASHBOOK_PACKED_QUERIES>(
        [](const auto& from, Spec& to) {
          require_positive("queries", from.queries);
          to.batching.packed_queries = from.queries;
        },
        {{"first_query", place_of(TableId::document_query)}}),
};

const Definition unsplit = {
    .plural = "results that do not depend on the batch (one split)",
    .cure = "let it choose the number of splits",
    .is_in = [](const Spec& spec) { return spec.batching.unsplit; },
    .give = [](Spec& spec, std::mt19937&) { spec.batching.unsplit = true; },
    .in_c = c_struct<FlashbookUnsplit, FLASHBOOK_UNSPLIT>(
        [](const auto&, Spec& to) { to.batching.unsplit = true; }),
};

}  // namespace flashbook::features

// Sizes, and digests of the right numbers, which course/digests.py writes from the grader's formulas.
#include "chapters/07_backward/exercises/budget.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using Problem = backward::Budget;

const std::vector<Size<Problem>> kSizes = {{"head_dim", &Problem::head_dim, {64, 96, 160, 192, 256}},
                                           {"keys", &Problem::keys, {64, 96, 112}},
                                           {"queries", &Problem::queries, {16, 32, 48, 64, 128}},
                                           {"consumers", &Problem::consumers, {1, 4}}};

DIGESTS(BackwardBudget, KeysAndValues, key_bytes, 1e-06, "a06f76a0f9c83c865143f31df363b58a27c1e4a6dcad72d2");
DIGESTS(BackwardBudget, AStage, stage_bytes, 1e-06, "a326d1cbece6f1721d0cbff2a7c1b8e687b697ddac3dbcc9");
DIGESTS(BackwardBudget, DqOfATile, dq_bytes, 1e-06, "0212b546efced4e3dac9925d1d4f68fb5d118808e2cf7b40");
DIGESTS(BackwardBudget, DsOfATile, ds_bytes, 1e-06, "8e8bfaeff2fb4e5401f007a92f7aedc4343e548b95693c0d");
DIGESTS(BackwardBudget, All, shared_bytes, 1e-06, "33578b87147b534bd2fdab495a0fbf9dc3d6a001183d20c6");
DIGESTS(BackwardBudget, MostQueries, most_queries, 1e-06, "5adb692f388f582112972ddaf7ab8669ad33e56b4000cbe2");
DIGESTS(BackwardBudget, RegistersOfSums, sum_registers, 1e-06,
        "98098c3098c3c4e3ab2b90ea307a3ca772dfe728b47ec3a2");
DIGESTS(BackwardBudget, RegistersOfScores, score_registers, 1e-06,
        "1fb013292970448840b2af796107ff7252dc78f7c09cd244");
DIGESTS(BackwardBudget, ClocksOfProducts, product_clocks, 1e-06,
        "efff552e3eda394e022962bf635900cc977904caa7ddfe5a");
DIGESTS(BackwardBudget, BytesAddedAClock, added_bytes_a_clock, 1e-06,
        "407d81e6fe9b145d8b78e18570fd315f3d5a4b9295945d41");

}  // namespace
}  // namespace flashbook::testing

// Sizes, and digests of the right numbers, which course/digests.py writes from the grader's formulas.
#include "chapters/04_flash_attention_2/exercises/budget.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using Problem = fa2::Budget;

const std::vector<Size<Problem>> kSizes = {{"head_dim", &Problem::head_dim, {64, 96, 128, 160}},
                                           {"warps", &Problem::warps, {2, 4, 8}},
                                           {"queries", &Problem::queries, {16, 32}},
                                           {"keys", &Problem::keys, {16, 32, 48, 64}},
                                           {"stages", &Problem::stages, {1, 2, 3}}};

DIGESTS(Budget, SharedMemory, shared_bytes, 1e-06, "8bc231aa2c09ab2a44455891b404dc4a0477770aa919ac69");
DIGESTS(Budget, BlocksThatFit, blocks, 1e-06, "7b2b0ed034bc865a311dfd334bd7aa709cbad65ee819651d");
DIGESTS(Budget, RegistersOfO, registers_o, 1e-06, "a38e5e815bfe83e4496a8aa98797172ed782f2ba812ae04d");
DIGESTS(Budget, RegistersOfScores, registers_scores, 1e-06,
        "c7ed05fc932deb39f60d80f0a8ff0149019a9c845d765ea7");
DIGESTS(Budget, RegistersAtMost, registers_at_most, 1e-06,
        "889353caeaea80c5e9eeb493f79dce2054be237174a5ef71");
DIGESTS(Budget, Products, products, 1e-06, "032a1e2c294e8039a88b6d76ed29b3b5c330ce8a3710ca72");
DIGESTS(Budget, BytesThatAWarpReads, read_bytes, 1e-06, "9d377c46d726d79f611c6c076992c8f4d3a9958ab59bad0b");
DIGESTS(Budget, BytesThatABlockReadsWithHalfTheRowsAWarp, block_reads_of_half, 1e-06,
        "54251d76ca17aa8da441186e69221c70d3bbaeec8731392b");

}  // namespace
}  // namespace flashbook::testing

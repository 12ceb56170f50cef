// Sizes, and digests of the right numbers, which course/digests.py writes from the grader's formulas.
#include "chapters/00_the_machine/exercises/counts.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using Problem = machine::Counts;

const std::vector<Size<Problem>> kSizes = {{"registers", &Problem::registers, {32, 64, 128, 168, 248}},
                                           {"threads", &Problem::threads, {64, 128, 192, 256}},
                                           {"shared_kb", &Problem::shared_kb, {1, 24, 48, 80, 120, 200}},
                                           {"stride", &Problem::stride, {1, 2, 5, 7, 12, 32}},
                                           {"offset", &Problem::offset, {0, 8, 24, 40, 64, 96}},
                                           {"word_stride", &Problem::word_stride, {1, 2, 7, 24, 33, 48, 64}},
                                           {"latency", &Problem::latency, {500, 640, 900}},
                                           {"bandwidth", &Problem::bandwidth, {2.0e12, 3.35e12, 8.0e12}},
                                           {"queries", &Problem::queries, {64, 128, 192}},
                                           {"keys", &Problem::keys, {64, 80, 176}},
                                           {"head_dim", &Problem::head_dim, {64, 192, 256}}};

DIGESTS(MachineCounts, BlocksByRegisters, blocks_by_registers, 1e-06,
        "2c8f9053ca82fc2415d3bd2cc8078f3a4c02933816b66635");
DIGESTS(MachineCounts, BlocksByShared, blocks_by_shared, 1e-06,
        "7d3a3370a1118163e0637f1e1753eab9627250238a49674a");
DIGESTS(MachineCounts, Occupancy, occupancy, 1e-06, "94816484f9ba30bfce121a04f7bdda27795ff795bd5a66ef");
DIGESTS(MachineCounts, Sectors, sectors, 1e-06, "c73c2ab6855a8411ae2c325da86d7b96a31de4cc49f5a349");
DIGESTS(MachineCounts, SectorsOfPairs, sectors_of_pairs, 1e-06,
        "7662227b2b1d97e11338b16ee30e2c9773eb2a4752717c30");
DIGESTS(MachineCounts, Wavefronts, wavefronts, 1e-06, "362e2cd7b3a5fc0cff8c38d364222b9c9b8a094efc63a085");
DIGESTS(MachineCounts, BytesUnderWay, bytes_under_way, 1e-06,
        "a2e5dc18aa3e485d8e982149dc4bd4d5fddff9608fd205a8");
DIGESTS(MachineCounts, ProductClocks, product_clocks, 1e-06,
        "385ec97479b35f1b691b59e58134e508710b42622ebbb755");
DIGESTS(MachineCounts, ExponentialClocks, exponential_clocks, 1e-06,
        "5c59f7474497d8013d8938620995c7672e74d88e562db29b");

}  // namespace
}  // namespace flashbook::testing

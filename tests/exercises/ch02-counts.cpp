// Sizes, and digests of the right numbers, which course/digests.py writes from the grader's formulas.
#include "chapters/02_online_softmax/exercises/counts.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using Problem = Counts;

const std::vector<Size<Problem>> kSizes = {{"scores", &Problem::scores, {16384, 32768, 49152, 131072}},
                                           {"tile", &Problem::tile, {16, 32, 64}},
                                           {"head_dim", &Problem::head_dim, {64, 96, 192, 256}},
                                           {"first", &Problem::first, {-4, -1, 2, 7}},
                                           {"step", &Problem::step, {0.125, 0.25, 1, 2}}};

DIGESTS(Counts, Maximum, maximum, 1e-06, "ff17854f5f59c9a7846708b98283fbea0c0b82a50cd93caa");
DIGESTS(Counts, Sum, sum, 0.001, "0b9497f9bb87269feb5ec1f32a59eea5af04dbefad553752");
DIGESTS(Counts, Rises, rises, 1e-06, "fe7611c13f31d20da57afc779de2c6ef7712be54755ff301");
DIGESTS(Counts, RisesInTiles, rises_in_tiles, 1e-06, "8107683c895ff344d044cfa61f752d1df19aef747fd3e2f8");
DIGESTS(Counts, Maxima, maxima, 0.001, "8efc1a1f158e7abd109536cebda4047f70099988f9942774");
DIGESTS(Counts, TilesWithAMaximum, tiles_with_a_maximum, 0.001,
        "b6516e71492b22eab0ea79a187c90ab9018c5cad0a4ea5fd");
DIGESTS(Counts, MultiplicationsOfStep3, multiplications_of_step3, 1e-06,
        "7820807ec033bb192584c6421af8db72546d354e6395f555");
DIGESTS(Counts, MultiplicationsOfStep4, multiplications_of_step4, 1e-06,
        "fd6e1d653b82cc43a66d00751ad3fbf7176eacd91d46058c");

}  // namespace
}  // namespace flashbook::testing

// Sizes, and digests of the right numbers, which course/digests.py writes from the grader's formulas.
#include "chapters/06_fp8/exercises/budget.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using Problem = fp8::Budget;

const std::vector<Size<Problem>> kSizes = {{"head_dim", &Problem::head_dim, {64, 96, 128, 160}},
                                           {"keys", &Problem::keys, {32, 64, 96, 160}},
                                           {"consumers", &Problem::consumers, {1, 3, 4}},
                                           {"transposers", &Problem::transposers, {1, 3, 4}},
                                           {"rise", &Problem::rise, {0, 1, 2, 4, 5}}};

DIGESTS(Budget, BytesOfAStage, stage_bytes, 1e-06, "d2fdbb2688a9a6e030311b4024c2f93925917ee3a4508156");
DIGESTS(Budget, MostStages, most_stages, 1e-06, "b15858514bc53afdc67a43060c370b98eb1a1e6900d25b0c");
DIGESTS(Budget, SharedMemory, shared_bytes, 1e-06, "40848712e154b01fb4a04afe69f55cd469a955177bfcefe9");
DIGESTS(Budget, ArrivalsAtFull, transposed_full_arrivals, 1e-06,
        "450935c9ecde8e3274d70ed18199fc94a7ca4165664c45f0");
DIGESTS(Budget, ArrivalsAtEmpty, transposed_empty_arrivals, 1e-06,
        "423885c05c018a88f2dec5a523a2060c34003019c5326c5e");
DIGESTS(Budget, LoadsOfATransposer, loads_of_transposer, 1e-06,
        "b56ddfa1215ad4ae89db0caca0199150d2da6ed1e80a7e72");
DIGESTS(Budget, RegistersOfO, registers_o, 1e-06, "6c250b0098131154829385688797172ed78251f6782ae04d");
DIGESTS(Budget, RegistersOfScores, registers_scores, 1e-06,
        "c7ed05eaea26902203348c0d5b5cff731897ced08b7e6bfe");
DIGESTS(Budget, RegistersOfP, registers_p, 1e-06, "03f759543ce68ff02048d9af901277429bfa607e5b9fdf42");
DIGESTS(Budget, RegistersOfQ, registers_q, 1e-06, "ccb4b229b976875bed8b07546789a8ab022f286547216113");
DIGESTS(Budget, Products, products, 1e-06, "33e4f9b51d1293a5ba31eb61d4aa4997bf673de170f22e55");
DIGESTS(Budget, CyclesOfProducts, product_cycles, 1e-06, "fff9a485d9c8938338c4a08c5307502ddb8394b173462a69");
DIGESTS(Budget, CyclesOfExponentials, exponential_cycles, 1e-06,
        "e0a2d455e7f49a67fef5a24d078eedd4738332582c2ef1d8");
DIGESTS(Budget, CyclesOfSharedMemory, shared_memory_cycles, 1e-06,
        "48c438c4af6725decd42a89fbf0a724fd8542a9f4a4932b0");
DIGESTS(Budget, Offset, offset, 1e-06, "f71973ae1228b193007a5dedecd71ecf89653cd67fa57c3f");
DIGESTS(Budget, LeastExponent, least_exponent, 1e-06, "e5bc6d0d05100b84ecdaf0d139d89e3f3330dae41de6e655");

}  // namespace
}  // namespace flashbook::testing

// Sizes, and digests of the right numbers, which course/digests.py writes from the grader's formulas.
#include "chapters/05_flash_attention_3/exercises/budget.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using Problem = fa3::Budget;

const std::vector<Size<Problem>> kSizes = {{"head_dim", &Problem::head_dim, {64, 128, 160, 256}},
                                           {"consumers", &Problem::consumers, {2, 3}},
                                           {"stages", &Problem::stages, {2, 3, 4}},
                                           {"keys", &Problem::keys, {48, 64, 80, 112, 128}},
                                           {"seqlen_k", &Problem::seqlen_k, {1000, 2048, 5000, 8192}},
                                           {"producer_registers", &Problem::producer_registers, {24, 32}}};

DIGESTS(Budget, MostKeys, most_keys, 1e-06, "9daa03c87fdf3a05c27eb29affda02b13ce8b9162872fb99");
DIGESTS(Budget, BytesOfAStage, stage_bytes, 1e-06, "9bbafe0e09d5ba6f63f1eaa9a75cf98c9e227b7aecb22a99");
DIGESTS(Budget, SharedMemory, shared_bytes, 1e-06, "f40f7d2a768c8ab271f8938d1c5e31779f2fc57357b93056");
DIGESTS(Budget, ArrivalsAtEmpty, empty_arrivals, 1e-06, "42388545f4d1d5292bd6fe6372544c4d7df0df6fa504259b");
DIGESTS(Budget, FillingsOfStage0, fillings, 1e-06, "83e557a63098429a8227e794aaa980983c73af7ad5a3a8bd");
DIGESTS(Budget, RegistersAtTheStart, registers_at_start, 1e-06,
        "2e209036bbbb4c31a36d8269132e3313f2e606b587371e46");
DIGESTS(Budget, RegistersOfAConsumer, registers_of_consumer, 1e-06,
        "8216f9200bc553e9a19d002701ec5c08f6ae447ee7c46a68");
DIGESTS(Budget, RegistersOfO, registers_o, 1e-06, "6c250b34361e7edad46a8aa94437702ed78251f6782ae04d");
DIGESTS(Budget, RegistersOfScores, registers_scores, 1e-06,
        "2cb6ad41233cfe60e18302dc1b18514f0a4d436625244e2a");
DIGESTS(Budget, RegistersOfP, registers_p, 1e-06, "ed8c5f25d27a103f951c4c8f901277d555c2a9b186353930");
DIGESTS(Budget, Products, products, 1e-06, "2be5826fb1c4fd73755c62fc4c6b5c454454356a29783928");
DIGESTS(Budget, CyclesOfProducts, product_cycles, 1e-06, "e5ac7e0fe78c99ae57f2efeb8d946b6f8378c063f4cd7a2b");
DIGESTS(Budget, CyclesOfExponentials, exponential_cycles, 1e-06,
        "e6604255e7f4c38943bda7e6c8a673d47383a8700b7f60e3");

}  // namespace
}  // namespace flashbook::testing

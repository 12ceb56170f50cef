#include "tests/exercises/ch05-phase.cu"

namespace flashbook::testing {
TEST_F(Phase, WholeRoundsOfSeveralHeads) { expect_norms(drawn(2, 4, 1), 96 * drawn(2, 4, 2)); }
}  // namespace flashbook::testing

// Not handed out: what these tests ask is in their names, which students see, and no more.
#include "tests/exercises/ch05-phase.cu"

namespace flashbook::testing {
namespace {

TEST_F(Phase, WholeRoundsOfSeveralHeads) { expect_norms(drawn(2, 4, 1), 96 * drawn(2, 4, 2)); }

}  // namespace
}  // namespace flashbook::testing

// Digests of the right numbers, written from the grader's formulas.
#include "chapters/04_flash_attention_2/exercises/budget.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using fa2::Budget;

void expect(double (Budget::*predicted)() const, double tolerance, const std::vector<uint64_t>& digests) {
  expect_digests<Budget>({{"head_dim", &Budget::head_dim, {64, 96, 128, 160}},
                          {"warps", &Budget::warps, {2, 4, 8}},
                          {"queries", &Budget::queries, {16, 32}},
                          {"keys", &Budget::keys, {16, 32, 48, 64}},
                          {"stages", &Budget::stages, {1, 2, 3}}},
                         predicted, tolerance, digests);
}

TEST(Budget, SharedMemory) {
  expect(&Budget::shared_bytes, 1e-06,
         {10070665703311487280u, 12262185906053143235u, 12333746023018191478u, 4996904145311671289u,
          12971735778803215196u, 5333519377112088879u, 8577855184743769170u, 1849969677781490949u});
}
TEST(Budget, BlocksThatFit) {
  expect(&Budget::blocks, 1e-06,
         {8875203168275842788u, 15002823009809614871u, 9681104588949373850u, 2160940097776015213u,
          5465023938296245688u, 8114565662823135179u, 15447039480243269310u, 1829901173076929441u});
}
TEST(Budget, RegistersOfO) {
  expect(&Budget::registers_o, 1e-06,
         {11785461627372716086u, 9321323294470556745u, 9503802399810084176u, 7677134697914984355u,
          9770303784223922098u, 3375309645606363525u, 17490434480653912636u, 3089554884492435359u});
}
TEST(Budget, RegistersOfScores) {
  expect(&Budget::registers_scores, 1e-06,
         {14406176805631506802u, 18199941018423864389u, 16949849368452765260u, 973042319820752431u,
          12177453198997149718u, 5260655219928880009u, 11278241984358380976u, 8529438803067709059u});
}
TEST(Budget, RegistersAtMost) {
  expect(&Budget::registers_at_most, 1e-06,
         {9841301586318293390u, 14621757426165706689u, 9279079044984891496u, 17200535264556861931u,
          17842644706803553866u, 2329696425927301437u, 2553950053910088932u, 11956900567941010167u});
}
TEST(Budget, Products) {
  expect(&Budget::products, 1e-06,
         {228027927952802258u, 3182161397844308245u, 9239600986928889564u, 10046816431231673903u,
          17089387689773444918u, 13097365522949239465u, 14882769170793610656u, 1209905427074572771u});
}
TEST(Budget, BytesThatAWarpReads) {
  expect(&Budget::read_bytes, 1e-06,
         {11328660597737400934u, 5104591381940421625u, 15537244318522900064u, 2048020397239047699u,
          7607363215912948418u, 17641630434328737493u, 10775625145502259820u, 11217634968559952655u});
}
TEST(Budget, BytesThatABlockReadsWithHalfTheRowsAWarp) {
  expect(&Budget::block_reads_of_half, 1e-06,
         {6063284411908553345u, 8559680016210183710u, 12289660261812142939u, 4690621012362153960u,
          7575649028779686829u, 8130047567034759146u, 12604598257040253479u, 3546913978395577556u});
}

}  // namespace
}  // namespace flashbook::testing

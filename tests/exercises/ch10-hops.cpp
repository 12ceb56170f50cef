// Digests of the right numbers, written from the grader's formulas.
#include "chapters/10_many_gpus/exercises/hops.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using many_gpus::Hop;

void expect(double (Hop::*predicted)() const, double tolerance, const std::vector<uint64_t>& digests) {
  expect_digests<Hop>({{"ranks", &Hop::ranks, {3, 4, 8, 16}},
                       {"tokens", &Hop::tokens, {1000, 8192, 65536}},
                       {"heads", &Hop::heads, {32, 64, 96}},
                       {"kv_heads", &Hop::kv_heads, {4, 8, 32}},
                       {"head_dim", &Hop::head_dim, {64, 256}},
                       {"flops_per_second", &Hop::flops_per_second, {600e12, 1500e12}},
                       {"bytes_per_second", &Hop::bytes_per_second, {25e9, 200e9, 750e9}}},
                      predicted, tolerance, digests);
}

TEST(Hops, BytesForward) {
  expect(&Hop::bytes_forward, 1e-06,
         {5106033806448856323u, 16501972938564158624u, 15707050107807787657u, 15955286928875335414u,
          15363765625476091935u, 8522759106433928748u, 8806937950435402933u, 14903623824798666706u});
}
TEST(Hops, BytesBackward) {
  expect(&Hop::bytes_backward, 1e-06,
         {6745596013663295615u, 12610293891623230524u, 10414314139020168325u, 3484451782408724274u,
          4159692036460423091u, 13775450105685826480u, 9367320431745802953u, 16382224312285677046u});
}
TEST(Hops, LeastTokens) {
  expect(&Hop::least_tokens, 1e-06,
         {7972911217084664872u, 3319392593687136539u, 17077137462362029598u, 6978687588792087777u,
          12976881470664292660u, 17786432121249693095u, 10017798323466180250u, 16541878709594917517u});
}
TEST(Hops, LeastTokensCausal) {
  expect(&Hop::least_tokens_causal, 1e-06,
         {583211446206048123u, 9666757324188155704u, 10668948880899692497u, 10584631568897409182u,
          8627823266697692839u, 1738038177904510212u, 12529046183903558893u, 6173548666060927882u});
}
TEST(Hops, LeastTokensBackward) {
  expect(&Hop::least_tokens_backward, 1e-06,
         {3492522820620529715u, 704697693338442304u, 6961680587759122281u, 12770714768268720550u,
          11247102597284152463u, 1742869101078145164u, 646355843850177717u, 430955859490139426u});
}
TEST(Hops, LastRank) {
  expect(&Hop::last_rank, 1e-06,
         {17255714216314117505u, 12179221071720318270u, 11646518321656654347u, 15308251504489804584u,
          23700518326680509u, 2950459982778488506u, 9671988259614069079u, 16562107371434133284u});
}
TEST(Hops, BytesUlysses) {
  expect(&Hop::bytes_ulysses, 1e-06,
         {8001743698808349878u, 12800738637907926137u, 10038060986820698096u, 9625732778728821635u,
          3326381056896486914u, 14798626454603184645u, 6821010044775438796u, 12471027534156131103u});
}
TEST(Hops, BytesDecoding) {
  expect(&Hop::bytes_decoding, 1e-06,
         {7740400528985141315u, 13950263328764981136u, 8138796156779740089u, 6398058899678194566u,
          15860428479288254623u, 8576586238788012252u, 13535359942668756709u, 5083803219305563762u});
}

}  // namespace
}  // namespace flashbook::testing

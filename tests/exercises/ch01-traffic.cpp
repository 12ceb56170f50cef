// Digests of the right numbers, written from the grader's formulas.
#include "chapters/01_naive_attention/exercises/traffic.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using naive::Traffic;

void expect(double (Traffic::*predicted)() const, double tolerance, const std::vector<uint64_t>& digests) {
  expect_digests<Traffic>({{"heads", &Traffic::heads, {8, 16, 24, 40, 64}},
                           {"kv_heads", &Traffic::kv_heads, {1, 2, 4, 8}},
                           {"tokens", &Traffic::tokens, {1024, 1536, 3072, 4096, 5120}},
                           {"head_dim", &Traffic::head_dim, {64, 96, 128, 192, 256}}},
                          predicted, tolerance, digests);
}

TEST(Traffic, Pairs) {
  expect(&Traffic::pairs, 1e-06,
         {15815408881113907911u, 2596804002821306164u, 8523575930637524077u, 10867686805148884570u,
          14128824300224295051u, 7450150004739623304u, 12583635112708429553u, 14035398699741642270u});
}
TEST(Traffic, Flops) {
  expect(&Traffic::flops, 1e-06,
         {1595185527696269638u, 16762884115462337945u, 8599137450595386976u, 13566520200330346403u,
          2475744761635371186u, 12195169881519159909u, 12157730803947513500u, 13708771387376421311u});
}
TEST(Traffic, InputOutputBytes) {
  expect(&Traffic::input_output_bytes, 1e-06,
         {15518328961751202472u, 4997019748184624011u, 6653865634728452158u, 11756444924262644385u,
          3390871347759824548u, 10510093478922013351u, 6789737566047874698u, 1330663609801125677u});
}
TEST(Traffic, ScoreBytes) {
  expect(&Traffic::score_bytes, 1e-06,
         {8781534181409117083u, 17620881355351970520u, 13595200277703312689u, 15031456524675799326u,
          6276929936651853879u, 16324376816503287716u, 11475637815549652349u, 430495631724426186u});
}
TEST(Traffic, Step1Bytes) {
  expect(&Traffic::step1_bytes, 1e-06,
         {9315423179614956408u, 17495854163805939547u, 18011148158367069198u, 8782644264526736641u,
          17511539157469513396u, 2163850760461346551u, 9720604959087198634u, 921752757272648989u});
}
TEST(Traffic, Step4Bytes) {
  expect(&Traffic::step4_bytes, 1e-06,
         {10954041844073618939u, 7706283325640262904u, 1052394704676763889u, 12087707519649953214u,
          12894412916769621799u, 11208613337515744580u, 13636949410727660461u, 8826410709119769466u});
}
TEST(Traffic, FlopsPerByte) {
  expect(&Traffic::flops_per_byte, 1e-06,
         {2589683937864990705u, 7067319954910897950u, 15154941881581760315u, 8113460594238116504u,
          10179748343684564653u, 59388884397596874u, 13920028951844397623u, 13997288944425962580u});
}

}  // namespace
}  // namespace flashbook::testing

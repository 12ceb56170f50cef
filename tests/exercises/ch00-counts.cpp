// Digests of the right numbers, written from the grader's formulas.
#include "chapters/00_the_machine/exercises/counts.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using machine::Counts;

void expect(double (Counts::*predicted)() const, double tolerance, const std::vector<uint64_t>& digests) {
  expect_digests<Counts>({{"registers", &Counts::registers, {32, 64, 128, 168, 248}},
                          {"threads", &Counts::threads, {64, 128, 192, 256}},
                          {"shared_kb", &Counts::shared_kb, {1, 24, 48, 80, 120, 200}},
                          {"stride", &Counts::stride, {1, 2, 5, 7, 12, 32}},
                          {"offset", &Counts::offset, {0, 8, 24, 40, 64, 96}},
                          {"word_stride", &Counts::word_stride, {1, 2, 7, 24, 33, 48, 64}},
                          {"latency", &Counts::latency, {500, 640, 900}},
                          {"bandwidth", &Counts::bandwidth, {2.0e12, 3.35e12, 8.0e12}},
                          {"queries", &Counts::queries, {64, 128, 192}},
                          {"keys", &Counts::keys, {64, 80, 176}},
                          {"head_dim", &Counts::head_dim, {64, 192, 256}}},
                         predicted, tolerance, digests);
}

TEST(MachineCounts, BlocksByRegisters) {
  expect(&Counts::blocks_by_registers, 1e-06,
         {3210943625258693701u, 6037781664374087250u, 18168670925810455903u, 15257399570047929868u,
          14413647097057771449u, 4200735255392485638u, 10608254094952724627u, 13143251232508333792u});
}
TEST(MachineCounts, BlocksByShared) {
  expect(&Counts::blocks_by_shared, 1e-06,
         {9023581305558457926u, 8115787503426342057u, 9323542987666984240u, 7169482687485878595u,
          1680944702497070658u, 13358365288125738101u, 5774610956484846812u, 5289277962101664015u});
}
TEST(MachineCounts, Occupancy) {
  expect(&Counts::occupancy, 1e-06,
         {10700944810856368723u, 9581894326983931216u, 3512753652264031577u, 1304359777772489766u,
          17851664597546967343u, 2844409133453752796u, 17840373325538257925u, 6514157143987921650u});
}
TEST(MachineCounts, Sectors) {
  expect(&Counts::sectors, 1e-06,
         {14356396922169168621u, 13152018041607904138u, 9516579653939140343u, 3184710446917315396u,
          12136491840971335441u, 10854552085519310366u, 16486632680492324011u, 17700071895840697432u});
}
TEST(MachineCounts, SectorsOfPairs) {
  expect(&Counts::sectors_of_pairs, 1e-06,
         {8530418329335614809u, 8875220023740870310u, 10944049564476889843u, 4085167432934861664u,
          16361063875360899621u, 10913325559294860402u, 3046494227176369599u, 8177464316511615788u});
}
TEST(MachineCounts, Wavefronts) {
  expect(&Counts::wavefronts, 1e-06,
         {3904107388022617939u, 15542949036201850656u, 18162172236827596345u, 10104058782322152326u,
          7215376940336762271u, 11284765905773222060u, 670751212777239749u, 7178884806218456498u});
}
TEST(MachineCounts, BytesUnderWay) {
  expect(&Counts::bytes_under_way, 1e-06,
         {11738030715727332102u, 1777301778887359577u, 5214480318507890928u, 10962123983681013443u,
          15874015095812463826u, 15419726146682718725u, 17969520574497110412u, 15133687787657071103u});
}
TEST(MachineCounts, ProductClocks) {
  expect(&Counts::product_clocks, 1e-06,
         {4061905061828738484u, 8392936642063603223u, 6853186977757506746u, 1970858475334782717u,
          9310318996735885080u, 608280270542072315u, 4783436561637830030u, 13526373817721703233u});
}
TEST(MachineCounts, ExponentialClocks) {
  expect(&Counts::exponential_clocks, 1e-06,
         {6654621688277734052u, 5135395638090568231u, 15564789420954836506u, 9887761378067097837u,
          690676938820211144u, 7435008538275487803u, 15604504556238995838u, 3292865788635330081u});
}

}  // namespace
}  // namespace flashbook::testing

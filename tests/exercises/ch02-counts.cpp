// Digests of the right numbers, written from the grader's formulas.
#include "chapters/02_online_softmax/exercises/counts.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

void expect(double (Counts::*predicted)() const, double tolerance, const std::vector<uint64_t>& digests) {
  expect_digests<Counts>({{"scores", &Counts::scores, {16384, 32768, 49152, 131072}},
                          {"tile", &Counts::tile, {16, 32, 64}},
                          {"head_dim", &Counts::head_dim, {64, 96, 192, 256}},
                          {"first", &Counts::first, {-4, -1, 2, 7}},
                          {"step", &Counts::step, {0.125, 0.25, 1, 2}}},
                         predicted, tolerance, digests);
}

TEST(Counts, Maximum) {
  expect(&Counts::maximum, 1e-06,
         {18381306764056043135u, 5719388123391001612u, 14530728041148117109u, 7424388154916543298u,
          9404636873036374323u, 16864867652291044192u, 9413943964215093753u, 15653574171001290310u});
}
TEST(Counts, Sum) {
  expect(&Counts::sum, 0.001,
         {834458710401255332u, 17995126020553467063u, 2783202091953166426u, 6828006049180196653u,
          3051732426288551944u, 11938765832092928315u, 15848076093586393822u, 6140467317373060705u});
}
TEST(Counts, Rises) {
  expect(&Counts::rises, 1e-06,
         {18335861740453733311u, 13924902744181794972u, 15135935801178012437u, 8862089680342149618u,
          11376873543610907923u, 17255280689400440064u, 13714715430114472857u, 6913871290945603430u});
}
TEST(Counts, RisesInTiles) {
  expect(&Counts::rises_in_tiles, 1e-06,
         {9297515113351933441u, 4362122819912341630u, 17529365226896896459u, 4958364500873658088u,
          2266767942855624813u, 2157675282006216074u, 17254556172068316183u, 15268038481279712116u});
}
TEST(Counts, Maxima) {
  expect(&Counts::maxima, 0.001,
         {10303138709072045802u, 2239853170506909437u, 8844243600948488932u, 10752008206755882775u,
          13665051594779239278u, 9182850290949831473u, 11063367019625189304u, 10675629190145595851u});
}
TEST(Counts, TilesWithAMaximum) {
  expect(&Counts::tiles_with_a_maximum, 0.001,
         {13137403446532705843u, 8163103590551509584u, 2516017911644740217u, 16895713054542574374u,
          9784363093741214415u, 13331090427002206844u, 6678005815366559605u, 5667214470760432626u});
}
TEST(Counts, MultiplicationsOfStep3) {
  expect(&Counts::multiplications_of_step3, 1e-06,
         {8656059453825630108u, 9133356849260142927u, 13481848198006284610u, 9567407300529991925u,
          1943544502635444672u, 8238330048471977795u, 3841116791874900374u, 10805636903089817129u});
}
TEST(Counts, MultiplicationsOfStep4) {
  expect(&Counts::multiplications_of_step4, 1e-06,
         {18261565555659146771u, 7294567674978495072u, 14718790904040149913u, 7854406522903089382u,
          1933164939758375135u, 17804821658932831132u, 12455018813823083045u, 5045592928038884306u});
}

}  // namespace
}  // namespace flashbook::testing

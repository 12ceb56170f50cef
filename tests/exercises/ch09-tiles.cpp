// Digests of the right numbers, written from the grader's formulas.
#include "chapters/09_masks/exercises/tiles.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using masks::Tiled;

void expect(double (Tiled::*predicted)() const, double tolerance, const std::vector<uint64_t>& digests) {
  expect_digests<Tiled>({{"n", &Tiled::n, {1, 127, 1000, 1025, 2048}},
                         {"window", &Tiled::window, {0, 1, 127, 129, 300, 1000, 5000}},
                         {"documents", &Tiled::documents, {1, 3, 7}},
                         {"length", &Tiled::length, {5, 64, 200, 500}},
                         {"tile", &Tiled::tile, {64, 128, 192}}},
                        predicted, tolerance, digests);
}

TEST(Tiles, UnderACausalMask) {
  expect(&Tiled::causal_tiles, 1e-06,
         {12141102336608674568u, 6272545013562917563u, 17607480448707488622u, 1305730973105733969u,
          107041190938400468u, 10740464409600842199u, 6901660221367300250u, 2289984035924138141u});
}
TEST(Tiles, ThatNeedTheCausalMask) {
  expect(&Tiled::causal_partial_tiles, 1e-06,
         {16902930893331648999u, 12784221025838976932u, 9895539183853586877u, 3947736735246299242u,
          502980774753942411u, 9970096308844861976u, 15969588564254243057u, 11009777159705542238u});
}
TEST(Tiles, UnderAWindow) {
  expect(&Tiled::window_tiles, 1e-06,
         {3432195064295638439u, 5190599973692111540u, 2301918131706721485u, 3082134927699881834u,
          11356103796316628635u, 11795321346244625560u, 14012853665811396737u, 6806966698849478430u});
}
TEST(Tiles, FullUnderAWindow) {
  expect(&Tiled::window_full_tiles, 1e-06,
         {11941286207673367320u, 15310579611075193435u, 8198770972510212878u, 8671923380480444609u,
          12421897769089803380u, 5310089130524822823u, 12151271033494678138u, 17118176973639625613u});
}
TEST(Tiles, OfPackedDocuments) {
  expect(&Tiled::varlen_tiles, 1e-06,
         {16503821652303986855u, 10100723621839564212u, 5227725410957615053u, 5378335212397905802u,
          2028566919380477931u, 5536012447803111144u, 14578488231022502897u, 11871406573329853502u});
}
TEST(Tiles, OfDocumentsAsAMask) {
  expect(&Tiled::document_tiles, 1e-06,
         {18147532003145866608u, 9461550929259536307u, 12202709789984110342u, 9448311812976976441u,
          4162524600398464716u, 17979049655068105407u, 7049159496437779666u, 795266176619583317u});
}
TEST(Tiles, ShareOfVisiblePairs) {
  expect(&Tiled::visible_share, 1e-06,
         {13668629370336477231u, 2201193794094735564u, 10553324643801738725u, 13050334402831445618u,
          18350425624647031571u, 12169588644918040864u, 9813711797222076441u, 16852613488991582822u});
}

}  // namespace
}  // namespace flashbook::testing

// Digests of the right numbers, written from the grader's formulas.
#include "chapters/03_flash_attention_1/exercises/bytes.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using fa1::Bytes;

void expect(double (Bytes::*predicted)() const, double tolerance, const std::vector<uint64_t>& digests) {
  expect_digests<Bytes>({{"heads", &Bytes::heads, {8, 16, 24, 40, 64}},
                         {"kv_heads", &Bytes::kv_heads, {1, 2, 4, 8}},
                         {"tokens", &Bytes::tokens, {1024, 1536, 3072, 4096, 5120}},
                         {"head_dim", &Bytes::head_dim, {64, 96, 128, 192, 256}},
                         {"rows", &Bytes::rows, {16, 32, 64, 128}}},
                        predicted, tolerance, digests);
}

TEST(Bytes, Tile) {
  expect(&Bytes::tile_bytes, 1e-06,
         {4019411431904712654u, 1907798301986003489u, 4828748816988052552u, 7180350099556210155u,
          17007110711326215034u, 10142819570582017549u, 11304866818875211940u, 12888235229721601863u});
}
TEST(Bytes, LargestTile) {
  expect(&Bytes::largest_tile, 1e-06,
         {3754572027834089694u, 2995761106700826353u, 610534511042299448u, 7707259560174746571u,
          2310938915686926666u, 14111362985850768829u, 12699068205598581124u, 4276134607678597559u});
}
TEST(Bytes, Step1) {
  expect(&Bytes::step1_bytes, 1e-06,
         {15445278910382325301u, 7958501387794970930u, 17453199865851695407u, 9804998753273557068u,
          14243456366442563769u, 8883211538142710438u, 16366415328527451571u, 11083985695299229808u});
}
TEST(Bytes, Step2) {
  expect(&Bytes::step2_bytes, 1e-06,
         {5772199996283710222u, 2576939477004714785u, 17784725426347800056u, 16218112207092675835u,
          5576172839186609242u, 17410225786971857933u, 12277174168470426356u, 2888554680681678007u});
}
TEST(Bytes, MemoryOfStep1) {
  expect(&Bytes::step1_memory, 1e-06,
         {2993016819488705703u, 5830728160339979988u, 16478854382798886957u, 9029274135040626890u,
          3813882306986464091u, 5002348374776793880u, 17358946602853429473u, 18258826862693221870u});
}
TEST(Bytes, MemoryOfChapter1) {
  expect(&Bytes::chapter1_memory, 1e-06,
         {661145218600763224u, 11358154230897710171u, 7148623439100066430u, 12452623104988745761u,
          16446046032953643924u, 9867906446347739591u, 2079268210966176522u, 13861618857981097261u});
}

}  // namespace
}  // namespace flashbook::testing

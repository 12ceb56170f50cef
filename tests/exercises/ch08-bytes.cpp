// Digests of the right numbers, written from the grader's formulas.
#include "chapters/08_decoding/exercises/bytes.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using decoding::Cache;

void expect(double (Cache::*predicted)() const, double tolerance, const std::vector<uint64_t>& digests) {
  expect_digests<Cache>({{"layers", &Cache::layers, {28, 40, 61, 80}},
                         {"heads", &Cache::heads, {16, 40, 64, 128}},
                         {"kv_heads", &Cache::kv_heads, {1, 2, 4}},
                         {"head_dim", &Cache::head_dim, {64, 96, 192, 256}},
                         {"latent", &Cache::latent, {256, 384, 768}},
                         {"position", &Cache::position, {32, 96, 128}},
                         {"memory", &Cache::memory, {80e9, 192e9}},
                         {"weights", &Cache::weights, {7e9, 29e9}},
                         {"bytes_per_second", &Cache::bytes_per_second, {3.1e12, 7.7e12}},
                         {"flops_per_second", &Cache::flops_per_second, {620e12, 2100e12}},
                         {"tokens", &Cache::tokens, {1000, 4096, 5000}},
                         {"sequences", &Cache::sequences, {1, 8, 48}},
                         {"parts", &Cache::parts, {2, 5, 12}}},
                        predicted, tolerance, digests);
}

TEST(Bytes, KeysWithoutACache) {
  expect(&Cache::keys_without_cache, 1e-06,
         {17049370706540493003u, 6365487960854431848u, 12523214193639838401u, 2305048837891326222u,
          6137393210874729687u, 10952171568058783812u, 11156449185075058077u, 13526437240714366538u});
}
TEST(Bytes, AToken) {
  expect(&Cache::token_bytes, 1e-06,
         {689915252871011694u, 4673574361367315009u, 9419682900081662600u, 17944927349465191019u,
          1923491107455383834u, 3676690326068097837u, 13272803059922449284u, 14999639649562722967u});
}
TEST(Bytes, ATokenUngrouped) {
  expect(&Cache::token_bytes_ungrouped, 1e-06,
         {4048588064597457027u, 12473903153190612832u, 14049627436069315785u, 15227734135022476006u,
          10697018579625140047u, 1209116110988829420u, 14220244246207459397u, 7442823888966642610u});
}
TEST(Bytes, ATokenOfLatents) {
  expect(&Cache::token_bytes_of_latent, 1e-06,
         {8657390045405792366u, 8008814852808367553u, 15411875393840200376u, 1943273117236067883u,
          10242406342307622138u, 8206578781059132093u, 7119402187600520868u, 12455367603449384775u});
}
TEST(Bytes, SequencesThatFit) {
  expect(&Cache::sequences_that_fit, 1e-06,
         {5928425943668074444u, 12933851876251728927u, 11355698761198783698u, 3347584652075271173u,
          1875978714059959984u, 14818659169645791443u, 8031096239550443750u, 8827093087007216841u});
}
TEST(Bytes, Microseconds) {
  expect(&Cache::microseconds, 1e-06,
         {14807802381615157181u, 8763996320605812234u, 9108946709492144807u, 9697935931329877668u,
          16033698608238150385u, 14422192194619301054u, 16201905930125166011u, 3338690398390505880u});
}
TEST(Bytes, Partials) {
  expect(&Cache::partial_bytes, 1e-06,
         {8498454781713642420u, 16810136708613911639u, 492684628726254074u, 13094120989212131821u,
          14138979378044090328u, 6428130828533527067u, 12175944755682048814u, 4812562321349313057u});
}
TEST(Bytes, IntensityOfAGroup) {
  expect(&Cache::intensity_of_group, 1e-06,
         {9774396811416311136u, 10474657091046521651u, 14685807556021870566u, 1977288138574225433u,
          17812203481310720236u, 6229418276612248255u, 12297290064705748578u, 2659828563352716453u});
}
TEST(Bytes, IntensityOfALatentHead) {
  expect(&Cache::intensity_of_latent_head, 1e-06,
         {595738868314627047u, 2375445928166120500u, 2292642418526878925u, 10377047162337078250u,
          15682471613829556459u, 10566632039674067880u, 12263409953402624721u, 18137573887688328910u});
}
TEST(Bytes, HeadsAtTheRidge) {
  expect(&Cache::heads_at_ridge, 1e-06,
         {10382938217775765282u, 9341084307911868149u, 2124146452795415404u, 695495120492758287u,
          2275350000750972694u, 5973553593275199449u, 13256744570410916768u, 14044398606432606035u});
}

}  // namespace
}  // namespace flashbook::testing

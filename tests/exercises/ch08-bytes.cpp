// Sizes, and digests of the right numbers, which course/digests.py writes from the grader's formulas.
#include "chapters/08_decoding/exercises/bytes.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using Problem = decoding::Cache;

const std::vector<Size<Problem>> kSizes = {
    {"layers", &Problem::layers, {28, 40, 61, 80}},
    {"heads", &Problem::heads, {16, 40, 64, 128}},
    {"kv_heads", &Problem::kv_heads, {1, 2, 4}},
    {"head_dim", &Problem::head_dim, {64, 96, 192, 256}},
    {"latent", &Problem::latent, {256, 384, 768}},
    {"position", &Problem::position, {32, 96, 128}},
    {"memory", &Problem::memory, {80e9, 192e9}},
    {"weights", &Problem::weights, {7e9, 29e9}},
    {"bytes_per_second", &Problem::bytes_per_second, {3.1e12, 7.7e12}},
    {"flops_per_second", &Problem::flops_per_second, {620e12, 2100e12}},
    {"tokens", &Problem::tokens, {1000, 4096, 5000}},
    {"sequences", &Problem::sequences, {1, 8, 48}},
    {"parts", &Problem::parts, {2, 5, 12}}};

DIGESTS(Bytes, KeysWithoutACache, keys_without_cache, 1e-06,
        "ec9b885856c1adcb641ffd2d552c6697fdee9ad3abbbb78f");
DIGESTS(Bytes, AToken, token_bytes, 1e-06, "09931240dbdf82b96ff909301ab19c33063ab83278d0296c");
DIGESTS(Bytes, ATokenUngrouped, token_bytes_ungrouped, 1e-06,
        "382f79ad1c34c2fa4dd353c794737110c7a4c55874674a38");
DIGESTS(Bytes, ATokenOfLatents, token_bytes_of_latent, 1e-06,
        "78253a6f2506d5e1fb1af7e48e245671e39f62cd32acda5a");
DIGESTS(Bytes, SequencesThatFit, sequences_that_fit, 1e-06,
        "5245ffb37e459d978b2e75021a08d0cda6746f742f7a8022");
DIGESTS(Bytes, Microseconds, microseconds, 1e-06, "cd7fe1799ff87e697a8695fdde8323c825ebe0d8bb2e5569");
DIGESTS(Bytes, Partials, partial_bytes, 1e-06, "75f093e9499a06d65eb5b7a9c437be59354ea8f9a542c9a7");
DIGESTS(Bytes, IntensityOfAGroup, intensity_of_group, 1e-06,
        "87a5a2915d75cbce781b70bdf731a8567356aaa8c024e99b");
DIGESTS(Bytes, IntensityOfALatentHead, intensity_of_latent_head, 1e-06,
        "08447d20f7471fd11a9002add9a35492a437aa3062fbb59b");
DIGESTS(Bytes, HeadsAtTheRidge, heads_at_ridge, 1e-06, "90179b81a2321d7a7b09a6e51f93aa52e653b7f96ac2e7ba");

}  // namespace
}  // namespace flashbook::testing

// Sizes, and digests of the right numbers, which course/digests.py writes from the grader's formulas.
#include "chapters/01_naive_attention/exercises/traffic.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using Problem = naive::Traffic;

const std::vector<Size<Problem>> kSizes = {{"heads", &Problem::heads, {8, 16, 24, 40, 64}},
                                           {"kv_heads", &Problem::kv_heads, {1, 2, 4, 8}},
                                           {"tokens", &Problem::tokens, {1024, 1536, 3072, 4096, 5120}},
                                           {"head_dim", &Problem::head_dim, {64, 96, 128, 192, 256}}};

DIGESTS(Traffic, Pairs, pairs, 1e-06, "db7b9e2409b37649d396d1c7c413aa67643faea20dc2c7c0");
DIGESTS(Traffic, Flops, flops, 1e-06, "16233ce8a1ba775645bc45f6225b9ca93df2a8b8efbe3f56");
DIGESTS(Traffic, InputOutputBytes, input_output_bytes, 1e-06,
        "d75c2d4558fa5c5747a327482f0ecb91db5a5e39fe127777");
DIGESTS(Traffic, ScoreBytes, score_bytes, 1e-06, "79de46f489f2bcabdad09a76571c22e28bd69f41a705f96d");
DIGESTS(Traffic, Step1Bytes, step1_bytes, 1e-06, "814708f2cdc2f9f47379e238f3057c1e078a86e6860ccab9");
DIGESTS(Traffic, Step4Bytes, step4_bytes, 1e-06, "9804936af2370e9adba7c029b2f2289b8cfebd402d7a7db5");
DIGESTS(Traffic, FlopsPerByte, flops_per_byte, 1e-06, "23f06762142ad2512b7098cd8d45bb00d2fdc12de0c2405c");

}  // namespace
}  // namespace flashbook::testing

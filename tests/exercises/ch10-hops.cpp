// Sizes, and digests of the right numbers, which course/digests.py writes from the grader's formulas.
#include "chapters/10_many_gpus/exercises/hops.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using Problem = many_gpus::Hop;

const std::vector<Size<Problem>> kSizes = {
    {"ranks", &Problem::ranks, {3, 4, 8, 16}},
    {"tokens", &Problem::tokens, {1000, 8192, 65536}},
    {"heads", &Problem::heads, {32, 64, 96}},
    {"kv_heads", &Problem::kv_heads, {4, 8, 32}},
    {"head_dim", &Problem::head_dim, {64, 256}},
    {"flops_per_second", &Problem::flops_per_second, {600e12, 1500e12}},
    {"bytes_per_second", &Problem::bytes_per_second, {25e9, 200e9, 750e9}}};

DIGESTS(Hops, BytesForward, bytes_forward, 1e-06, "46dc46e502c8d9faa6dd6c90d5370f7646ec7a3887ced44e");
DIGESTS(Hops, BytesBackward, bytes_backward, 1e-06, "5d9d2baf00c3908713305b4239ba31bf2c3a81ff68e3595a");
DIGESTS(Hops, LeastTokens, least_tokens, 1e-06, "6ea5782e10d9ecfe2e60d947b41724f6d6198b065ee5908f");
DIGESTS(Hops, LeastTokensCausal, least_tokens_causal, 1e-06,
        "0817fb862738940fb892e42a77bc2f181ec0ade01d55acd9");
DIGESTS(Hops, LeastTokensBackward, least_tokens_backward, 1e-06,
        "3077ef09c796609cdbb13ab19c15bc182fea08f85105fb10");
DIGESTS(Hops, LastRank, last_rank, 1e-06, "ef789ca90549a1a0bed471d500543328f2238639cee5d86c");
DIGESTS(Hops, BytesUlysses, bytes_ulysses, 1e-06, "6f0be7b1a55b8b4e5b8595782e29adcd5f485ea918ad11fd");
DIGESTS(Hops, BytesDecoding, bytes_decoding, 1e-06, "6b6b6dc1994a70f2cf58ca78dc1b8f770627bbd742468d4c");

}  // namespace
}  // namespace flashbook::testing

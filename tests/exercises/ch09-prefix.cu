#include "chapters/09_masks/exercises/prefix_mask.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

using namespace masks;

/// Evaluates the mask for every pair. One block per batch entry and query.
__global__ void ask_pairs(PrefixMask mask, float* pairs) {  // [batch, seqlen_q, seqlen_k]
  const auto row = mask.row(blockIdx.y, 0, blockIdx.x);
  pairs += (int64_t(blockIdx.y) * mask.seqlen_q + blockIdx.x) * mask.seqlen_k;
  for (int key = threadIdx.x; key < mask.seqlen_k; key += 32) pairs[key] = row.sees(key);
}

class Prefix : public MachineTest {};

void expect_mask(const std::vector<int>& prompts, int seqlen_q, int seqlen_k) {
  device::Buffer prompt(device::Place::device, prompts.size() * sizeof(int));
  prompt.upload(std::as_bytes(std::span(prompts)));
  const DeviceArray pairs(DType::f32, prompts.size() * seqlen_q * seqlen_k);
  run(ask_pairs, dim3(unsigned(seqlen_q), unsigned(prompts.size())), dim3(32), 0,
      PrefixMask{static_cast<const int*>(prompt.data()), seqlen_q, seqlen_k}, pairs.as<float>());
  const std::vector<float> got = pairs.download();
  Comparison comparison;
  for (int batch = 0; batch < int(prompts.size()); ++batch)
    for (int query = 0; query < seqlen_q; ++query)
      for (int key = 0; key < seqlen_k; ++key) {
        const bool want = key < prompts[batch] || key - seqlen_k <= query - seqlen_q;
        comparison.expect(got[(std::size_t(batch) * seqlen_q + query) * seqlen_k + key], want, 0, [&] {
          return "whether (1: yes) in batch entry " + std::to_string(batch) + " query " +
                 std::to_string(query) + " sees key " + std::to_string(key);
        });
      }
  comparison.finish();
}

TEST_F(Prefix, WithoutAPrompt) { expect_mask({0}, 20, 20); }
TEST_F(Prefix, OfOneEntry) { expect_mask({7}, 20, 20); }
TEST_F(Prefix, OfAPromptOfItsOwnForEachEntry) { expect_mask({5, 0, 19, 1}, 24, 24); }
TEST_F(Prefix, OfMoreKeysThanQueries) { expect_mask({12, 40}, 10, 50); }
TEST_F(Prefix, OfMoreQueriesThanKeys) { expect_mask({4}, 30, 12); }

}  // namespace
}  // namespace flashbook::testing

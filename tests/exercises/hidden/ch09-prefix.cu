#include "tests/exercises/ch09-prefix.cu"

namespace flashbook::testing {
/// Writes whether each query sees a key beyond the last one.
__global__ void ask_beyond(PrefixMask mask, float* seen) {  // [seqlen_q]
  seen[blockIdx.x] = mask.row(0, 0, blockIdx.x).sees(mask.seqlen_k);
}

// A tile of keys may reach beyond the last.
TEST_F(Prefix, LongerThanAllKeys) {
  expect_mask({drawn(21, 120, 1)}, drawn(5, 15, 2), 20);
  const std::vector<int> prompts = {100};
  device::Buffer prompt(device::Place::device, sizeof(int));
  prompt.upload(std::as_bytes(std::span(prompts)));
  const DeviceArray seen(DType::f32, 10);
  run(ask_beyond, dim3(10), dim3(1), 0, PrefixMask{static_cast<const int*>(prompt.data()), 10, 20},
      seen.as<float>());
  for (const float is : seen.download()) EXPECT_EQ(is, 0) << "a key beyond the last one is seen";
}
}  // namespace flashbook::testing

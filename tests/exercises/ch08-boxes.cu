#include <numeric>

#include "chapters/08_decoding/exercises/boxes_by_token.cuh"
#include "common/ptx/convert.h"
#include "common/ptx/fence.h"
#include "tests/exercises/hopper_kernel.h"

namespace flashbook::testing {
namespace {

using decoding::kStageColumns;
using decoding::kStageKeys;
using decoding::PairStage;
using decoding::TokenCache;

constexpr int kTensors = 2;     // K and V
constexpr float kMarker = 256;  // a stage's initial contents, which no key has

/// Writes the contents of a stage after each tile of a sequence. One block of one warp per sequence and head.
__global__ void __launch_bounds__(32)
    bring_tiles(const __grid_constant__ CUtensorMap map, TokenCache cache, const int* lengths, int tiles,
                float* found) {  // [sequences, heads, tiles, kTensors, kStageKeys, kStageColumns]
  auto& stage = *dynamic_shared<PairStage>();
  constexpr int kElements = kStageKeys * kStageColumns;
  const int sequence = blockIdx.x, head = blockIdx.y, length = lengths[sequence];
  float* to = found + (int64_t(sequence) * gridDim.y + head) * tiles * kTensors * kElements;
  if (threadIdx.x == 0) {
    mbarrier_init(&stage.full, 1);
    name_mbarrier(&stage.full, "full", 0);
    fence_mbarrier_init();
  }
  __syncwarp();
  for (int tile = 0; tile * kStageKeys < length; ++tile) {
    for (int i = threadIdx.x; i < kElements; i += 32)
      (&stage.k[0][0])[i] = (&stage.v[0][0])[i] = from_float<__half>(kMarker);
    fence_proxy_async();  // TMA writes after these
    __syncwarp();
    decoding::bring(stage, map, cache, sequence, head, length, tile * kStageKeys);
    mbarrier_wait(&stage.full, tile % 2);
    for (int i = threadIdx.x; i < kElements; i += 32) {
      to[(tile * kTensors + 0) * kElements + i] = to_float((&stage.k[0][0])[i]);
      to[(tile * kTensors + 1) * kElements + i] = to_float((&stage.v[0][0])[i]);
    }
    __syncwarp();  // all lanes have read
  }
}

class Boxes : public HopperTest {};

/// `order`: the page of each entry in the table. Entries past a sequence's last page have none.
void expect_brought(const std::vector<int>& lengths, int page_keys, std::vector<int> order, int heads = 3) {
  const int sequences = int(lengths.size()), pages = int(order.size());
  const int longest = *std::max_element(lengths.begin(), lengths.end());
  const int pages_of_sequence = pages / sequences, tiles = (longest + kStageKeys - 1) / kStageKeys;
  for (int s = 0; s < sequences; ++s)
    for (int page = (lengths[s] + page_keys - 1) / page_keys; page < pages_of_sequence; ++page)
      order[s * pages_of_sequence + page] = 1 << 29;
  // [pages, kTensors, page_keys, heads, kStageColumns]
  const auto place = [&](int page, int tensor, int key, int head) {
    return (((std::size_t(page) * kTensors + tensor) * page_keys + key) * heads + head) * kStageColumns;
  };
  const std::vector<float> numbers = random_halves(place(pages, 0, 0, 0), 3);
  const DeviceArray kv(DType::f16, numbers);
  const std::size_t stage = std::size_t(kStageKeys) * kStageColumns;
  const DeviceArray found(DType::f32, std::size_t(sequences) * heads * tiles * kTensors * stage);
  device::Buffer table(device::Place::device, order.size() * sizeof(int));
  device::Buffer ends(device::Place::device, lengths.size() * sizeof(int));
  table.upload(std::as_bytes(std::span(order)));
  ends.upload(std::as_bytes(std::span(lengths)));
  const TokenCache cache{static_cast<const int*>(table.data()), pages_of_sequence, page_keys};
  constexpr uint64_t kRowBytes = kStageColumns * sizeof(__half);
  const uint64_t key_bytes = kRowBytes * uint64_t(heads), tensor_bytes = key_bytes * uint64_t(page_keys);
  const int keys_of_box = decoding::box_keys(cache);
  const CUtensorMap map = device::tensor_map(
      {.dtype = DType::f16,
       .base = kv.as<__half>(),
       .size = {kStageColumns, uint64_t(page_keys), uint64_t(heads), kTensors, uint64_t(pages)},
       .stride = {key_bytes, kRowBytes, tensor_bytes, kTensors * tensor_bytes},
       .box = {kStageColumns, uint32_t(keys_of_box), 1, 1, 1}});
  run(bring_tiles, dim3(unsigned(sequences), unsigned(heads)), dim3(32), sizeof(PairStage), map, cache,
      static_cast<const int*>(ends.data()), tiles, found.as<float>());

  const std::vector<float> got = found.download();
  Comparison comparison;
  for (int s = 0; s < sequences; ++s)
    for (int head = 0; head < heads; ++head)
      for (int key = 0; key < (lengths[s] + kStageKeys - 1) / kStageKeys * kStageKeys; ++key) {
        const bool in_last_box = key >= lengths[s] && key / keys_of_box == (lengths[s] - 1) / keys_of_box;
        for (int tensor = 0; tensor < kTensors && !in_last_box; ++tensor)
          for (int column = 0; column < kStageColumns; ++column) {
            const int tile = (s * heads + head) * tiles + key / kStageKeys;
            const std::size_t at = (std::size_t(tile) * kTensors + tensor) * stage +
                                   std::size_t(key % kStageKeys) * kStageColumns + column;
            const float want = key >= lengths[s]
                                   ? kMarker
                                   : numbers[place(order[s * pages_of_sequence + key / page_keys], tensor,
                                                   key % page_keys, head) +
                                             column];
            comparison.expect(got[at], want, 0, [&] {
              return "sequence " + std::to_string(s) + " of " + std::to_string(lengths[s]) + " keys, head " +
                     std::to_string(head) + ": column " + std::to_string(column) + " of " + "KV"[tensor] +
                     " of key " + std::to_string(key) +
                     (key < lengths[s] ? "" : ", whose box must stay as it was,");
            });
          }
      }
  comparison.finish();
}

/// Returns the pages from the last to the first.
std::vector<int> backwards(int pages) {
  std::vector<int> order(pages);
  std::iota(order.rbegin(), order.rend(), 0);
  return order;
}

TEST_F(Boxes, OnePageASequence) { expect_brought({128, 64}, 128, {0, 1}); }
TEST_F(Boxes, OnePageATile) { expect_brought({192, 128}, 64, backwards(6)); }
TEST_F(Boxes, SeveralPagesATile) { expect_brought({64, 128}, 16, backwards(16)); }
TEST_F(Boxes, APartOfATile) { expect_brought({96, 16}, 16, backwards(12)); }
TEST_F(Boxes, APartOfABox) { expect_brought({85, 1}, 16, backwards(12)); }
TEST_F(Boxes, PagesOfOneKey) { expect_brought({64}, 1, backwards(64), 2); }

}  // namespace
}  // namespace flashbook::testing

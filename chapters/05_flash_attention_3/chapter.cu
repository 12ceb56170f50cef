#include <algorithm>

#include "chapters/05_flash_attention_3/chapter.h"
#include "chapters/05_flash_attention_3/persistent.cuh"
#include "chapters/05_flash_attention_3/single_warpgroup.cuh"
#include "chapters/05_flash_attention_3/specialised.cuh"
#include "common/attention/cost.h"
#include "common/device/dispatch.h"
#include "common/device/launch.h"
#include "common/device/tensor_map.h"

namespace flashbook {
namespace {

using namespace flash3;

constexpr Step kSteps[] = {
    {"TMA and WGMMA",
     "One warpgroup, tiles that TMA brings and WGMMA multiplies where they lie, nothing overlapped."},
    {"warp specialisation",
     "A producer keeps a ring of tiles filled, consumers multiply, and registers move from one to the "
     "others."},
    {"pingpong",
     "The consumers take turns at the tensor cores, so that one's softmax lies under the others' products."},
    {"overlap in a warpgroup",
     "The scores of the next tile are issued before the values of this one are waited for."},
    {"persistent blocks",
     "Blocks that stay, longest tiles first, masked and unmasked loops apart, lazy rescaling, stores that "
     "overlap the next tile."},
};
constexpr DType kTypes[] = {DType::f16, DType::bf16};

constexpr int64_t kMaxGridX = 2147483647;

int64_t query_tiles(const Shape& shape, int rows) {
  return int64_t(shape.batch) * shape.heads * ((shape.seqlen_q + rows - 1) / rows);
}

std::string why_not(const Shape& shape, int) {
  if (shape.dtype != DType::f16 && shape.dtype != DType::bf16)
    return "chapter 5 takes f16 and bf16: choose one with --dtype";
  if (query_tiles(shape, kRowsOfWarpgroup) > kMaxGridX)
    return "batch * heads * seqlen / 64 is at most 2^31 - 1, what a grid has in x: split the batch with "
           "--batch";
  return "";
}

/// Step 5 under a causal mask hands out tiles by a counter.
bool counts_tiles(const Shape& shape, int step) { return step == 5 && shape.causal; }

int64_t workspace_bytes(const Shape& shape, int step) { return counts_tiles(shape, step) ? sizeof(int) : 0; }

double memory_bytes(const Shape& shape, int) { return compulsory_bytes(shape); }

Problem problem_of(const Shape& shape) {
  constexpr double kLog2E = 1.4426950408889634;
  return {shape.seqlen_q,
          shape.seqlen_k,
          shape.batch * shape.heads,
          shape.heads / shape.kv_heads,
          shape.causal,
          float(shape.scale * kLog2E)};
}

/// The map of a tensor [heads, rows, head_dim] whose boxes are tiles of `box_rows` rows: {column, row, panel,
/// head}.
CUtensorMap tiles_of(const Shape& shape, const void* base, int heads, int rows, int box_rows) {
  const uint64_t row_bytes = shape.head_dim * size_of(shape.dtype);
  const uint32_t panels = shape.head_dim / kPanel;
  return device::tensor_map({.dtype = shape.dtype,
                             .base = base,
                             .size = {kPanel, uint64_t(rows), panels, uint64_t(heads)},
                             .stride = {row_bytes, kPanelRowBytes, row_bytes * rows},
                             .box = {kPanel, uint32_t(box_rows), panels, 1},
                             .swizzle = Swizzle::b128});
}

CUtensorMap query_map(const Shape& shape, const void* base, int box_rows) {
  return tiles_of(shape, base, shape.batch * shape.heads, shape.seqlen_q, box_rows);
}

CUtensorMap key_map(const Shape& shape, const void* base, int box_rows) {
  return tiles_of(shape, base, shape.batch * shape.kv_heads, shape.seqlen_k, box_rows);
}

/// The order of step 5's tiles. Under a causal mask the longest go first, in sections of heads whose keys and
/// values fit the L2 cache, beside what else is in it.
TileOrder order_of(const Shape& shape, int rows, bool causal) {
  constexpr int64_t kSectionBytes = int64_t(32) << 20;
  const int64_t bytes_of_kv_head =
      2 * int64_t(shape.seqlen_k) * shape.head_dim * int64_t(size_of(shape.dtype));
  const int kv_heads =
      int(std::clamp<int64_t>(kSectionBytes / bytes_of_kv_head, 1, int64_t(shape.batch) * shape.kv_heads));
  const Problem problem = problem_of(shape);
  return {int(query_tiles(shape, rows)), problem.query_tiles(rows), problem.heads, kv_heads * problem.group,
          causal};
}

int multiprocessors() {
  static const int count = device::info().multiprocessors;
  return count;
}

template <typename T, int kHeadDim>
void run_single(const Shape& shape, const Tensors& t, device::Stream stream) {
  constexpr int kKeys = kHeadDim == 256 ? 64 : 128;
  device::launch(single_warpgroup<T, kHeadDim, kKeys>, dim3(query_tiles(shape, kRowsOfWarpgroup)),
                 dim3(kWarpgroup), sizeof(SingleShared<T, kHeadDim, kKeys>), stream,
                 query_map(shape, t.q, kRowsOfWarpgroup), key_map(shape, t.k, kKeys),
                 key_map(shape, t.v, kKeys), static_cast<T*>(t.o), t.lse, problem_of(shape));
}

template <typename T, int kHeadDim, bool kPingpong, bool kOverlap>
void run_specialised(const Shape& shape, const Tensors& t, device::Stream stream) {
  constexpr int kConsumers = kHeadDim == 64 ? 3 : 2, kKeys = kHeadDim == 256 ? 80 : 128, kSlots = 4;
  using Config = Specialised<kHeadDim, kConsumers, kKeys, kSlots, kPingpong, kOverlap>;
  device::launch(specialised<T, Config>, dim3(query_tiles(shape, kConsumers * kRowsOfWarpgroup)),
                 dim3(Config::kThreads), sizeof(SpecialisedShared<T, Config>), stream,
                 query_map(shape, t.q, kRowsOfWarpgroup), key_map(shape, t.k, kKeys),
                 key_map(shape, t.v, kKeys), static_cast<T*>(t.o), t.lse, problem_of(shape));
}

/// Sets step 5's counter to 0, before the kernel that counts. One thread.
__global__ void clear_counter(int* counter) { *counter = 0; }

template <typename T, typename Config>
void run_persistent(const Shape& shape, const Tensors& t, device::Stream stream) {
  constexpr int kRows = Config::kConsumers * kRowsOfWarpgroup;
  const TileOrder order = order_of(shape, kRows, Config::kCausal);
  auto* counter = static_cast<int*>(t.workspace);
  if constexpr (Config::kSchedule == Schedule::first_come)
    device::launch(clear_counter, dim3(1), dim3(1), 0, stream, counter);
  const int blocks =
      Config::kSchedule == Schedule::one_tile ? order.tiles : std::min(order.tiles, multiprocessors());
  device::launch(persistent<T, Config>, dim3(blocks), dim3(Config::kThreads),
                 sizeof(PersistentShared<T, Config>), stream, query_map(shape, t.q, kRowsOfWarpgroup),
                 key_map(shape, t.k, Config::kKeys), key_map(shape, t.v, Config::kKeys),
                 query_map(shape, t.o, kRowsOfWarpgroup), static_cast<T*>(t.o), t.lse, problem_of(shape),
                 order, counter);
}

/// Lengths up to which a version for short sequences is faster under a causal mask (measured on an H200).
constexpr int kShortD64 = 1024, kShortD128 = 2048;

/// The causal version for short sequences of head_dim 128: with so few tiles a turn, order pays after all.
struct ShortD128 : Persistent<128, 2, 128, 5, true> {
  static constexpr bool kPingpong = true;
};

/// Step 5's version for a head dimension, a mask and a length.
template <typename T, int kHeadDim, bool kCausal>
void run_tuned(const Shape& shape, const Tensors& t, device::Stream stream) {
  if constexpr (kHeadDim == 64) {
    // Of a short sequence, tiles of 192 queries waste more above the diagonal than tiles of 128.
    if (kCausal && shape.seqlen_q <= kShortD64)
      run_persistent<T, Persistent<64, 2, 128, 8, kCausal>>(shape, t, stream);
    else
      run_persistent<T, Persistent<64, 3, 128, 8, kCausal>>(shape, t, stream);
  } else if constexpr (kHeadDim == 128) {
    if (kCausal && shape.seqlen_q <= kShortD128)
      run_persistent<T, ShortD128>(shape, t, stream);
    else
      run_persistent<T, Persistent<128, 2, 128, 5, kCausal>>(shape, t, stream);
  } else {
    run_persistent<T, Persistent<256, 2, 64, 5, kCausal>>(shape, t, stream);
  }
}

void attention(const Shape& shape, const Tensors& tensors, device::Stream stream, int step) {
  device::with_type(shape.dtype, [&]<typename T>() {
    if constexpr (sizeof(T) == 2)  // with_type also knows float, which why_not refuses
      device::with_head_dim(shape.head_dim, [&]<int kHeadDim>() {
        switch (step) {
          case 1:
            return run_single<T, kHeadDim>(shape, tensors, stream);
          case 2:
            return run_specialised<T, kHeadDim, false, false>(shape, tensors, stream);
          case 3:
            return run_specialised<T, kHeadDim, true, false>(shape, tensors, stream);
          case 4:
            return run_specialised<T, kHeadDim, true, true>(shape, tensors, stream);
          default:
            return shape.causal ? run_tuned<T, kHeadDim, true>(shape, tensors, stream)
                                : run_tuned<T, kHeadDim, false>(shape, tensors, stream);
        }
      });
  });
}

}  // namespace

const Chapter kFlashAttention3 = {
    .number = 5,
    .name = "05_flash_attention_3",
    .title = "FlashAttention-3",
    .runs_on = device::Place::device,
    .steps = kSteps,
    .dtypes = kTypes,
    .gpu_shape = {.batch = 4,
                  .heads = 16,
                  .kv_heads = 16,
                  .seqlen_q = 4096,
                  .seqlen_k = 4096,
                  .head_dim = 128,
                  .dtype = DType::bf16,
                  .scale = default_scale(128)},
    .cpu_shape = {.batch = 1,
                  .heads = 2,
                  .kv_heads = 2,
                  .seqlen_q = 256,
                  .seqlen_k = 256,
                  .head_dim = 64,
                  .dtype = DType::bf16,
                  .scale = default_scale(64)},
    .why_not = why_not,
    .workspace_bytes = workspace_bytes,
    .memory_bytes = memory_bytes,
    .attention = attention,
    .preface = nullptr,
};

}  // namespace flashbook

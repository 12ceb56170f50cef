/// \file
/// Golden cases of mbarriers and TMA: where each byte of a box lands, and what the edges of a tensor do.
#include <array>
#include <string>
#include <vector>

#include "common/device/tensor_map.h"
#include "common/ptx/fence.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/tma.h"
#include "tests/simulator/golden.h"

namespace flashbook {
namespace {

constexpr unsigned kThreads = 128;
constexpr int kTileBytes = 16384;  // the largest box, plus room to shift it by less than 1024 bytes
constexpr int kTileRoom = kTileBytes + 1024;

/// A box's coordinates, for any rank.
struct Place {
  int at[5];
};

template <int kRank>
__device__ void load(void* tile, const CUtensorMap& map, uint64_t* barrier, const Place& place) {
  int at[kRank];
  for (int i = 0; i < kRank; ++i) at[i] = place.at[i];
  tma_load(tile, map, barrier, at);
}

template <int kRank>
__device__ void store(const CUtensorMap& map, const void* tile, const Place& place) {
  int at[kRank];
  for (int i = 0; i < kRank; ++i) at[i] = place.at[i];
  tma_store(map, tile, at);
}

/// Loads one box `shift` bytes after a multiple of 1024; everything around it stays 0xee.
template <int kRank>
__global__ void load_box(const __grid_constant__ CUtensorMap map, Place place, int shift, uint32_t bytes,
                         uint32_t* out) {  // [kTileRoom / 4]
  auto* room = dynamic_shared<unsigned char>();
  auto* barrier = reinterpret_cast<uint64_t*>(room + kTileRoom);
  for (int i = threadIdx.x; i < kTileRoom; i += kThreads) room[i] = 0xee;
  fence_proxy_async();
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(barrier, bytes);
    load<kRank>(room + shift, map, barrier, place);
  }
  mbarrier_wait(barrier, 0);
  for (int i = threadIdx.x; i < kTileRoom / 4; i += kThreads) out[i] = reinterpret_cast<uint32_t*>(room)[i];
}

/// Stores one box from a tile whose 16-bit words are numbered.
template <int kRank>
__global__ void store_box(const __grid_constant__ CUtensorMap map, Place place, int shift) {
  auto* room = dynamic_shared<uint16_t>();
  for (int i = threadIdx.x; i < kTileRoom / 2; i += kThreads) room[i] = uint16_t(i * 3 + 1);
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x > 0) return;
  store<kRank>(map, reinterpret_cast<unsigned char*>(room) + shift, place);
  tma_store_commit();
  tma_store_wait<0>();
}

/// Writes the states of a barrier used by a single thread: bit 0 is parity 0, bit 1 is parity 1.
__global__ void phases(const __grid_constant__ CUtensorMap map, uint32_t* out) {  // [16]
  auto* tile = dynamic_shared<unsigned char>();
  __shared__ uint64_t barrier;
  int step = 0;
  const auto note = [&] {
    out[step++] = uint32_t(mbarrier_try_wait(&barrier, 0)) | uint32_t(mbarrier_try_wait(&barrier, 1)) << 1;
  };
  mbarrier_init(&barrier, 2);
  fence_mbarrier_init();
  note();
  mbarrier_arrive(&barrier);
  note();
  mbarrier_arrive(&barrier);  // phase 0 is over
  note();
  mbarrier_arrive(&barrier);
  mbarrier_arrive(&barrier);  // phase 1 is over
  note();
  mbarrier_arrive_expect_tx(&barrier, 1024);
  mbarrier_arrive(&barrier);  // all have arrived, the bytes have not
  note();
  tma_load(tile, map, &barrier, {0, 0});
  mbarrier_wait(&barrier, 0);  // phase 2 is over
  note();
  tma_load(tile, map, &barrier, {0, 0});  // bytes before their announcement
  mbarrier_arrive(&barrier);
  note();
  mbarrier_arrive_expect_tx(&barrier, 1024);
  mbarrier_wait(&barrier, 1);  // phase 3 is over
  note();
  mbarrier_arrive_expect_tx(&barrier, 0);
  note();
  mbarrier_arrive_expect_tx(&barrier, 0);  // phase 4 is over
  note();
  while (step < 16) out[step++] = 0;
}

/// A tensor of numbered 16-bit words, its maps, and their cases.
template <int kRank>
class Tensor {
 public:
  Tensor(DType dtype, Swizzle swizzle, std::array<uint64_t, kRank> size, std::array<uint32_t, kRank> box)
      : dtype_(dtype), swizzle_(swizzle), size_(size), box_(box) {
    bytes_ = box_bytes_ = size_of(dtype);
    for (int i = 0; i < kRank; ++i) {
      if (i > 0) stride_.push_back(bytes_);
      bytes_ *= size[std::size_t(i)];
      box_bytes_ *= box[std::size_t(i)];
    }
    name_ = std::to_string(kRank) + "D " + std::string(name_of(dtype)) + " " +
            (swizzle == Swizzle::none ? "none" : "b" + std::to_string(swizzle_bytes(swizzle)));
  }

  void load_at(std::array<int, kRank> at, int shift = 0) const {
    std::vector<uint16_t> numbers(bytes_ / 2);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = uint16_t(i * 7 + 1);
    const Values<uint16_t> tensor(numbers);
    golden::run_block<uint32_t>("TMA load " + name_ + text_of(at, shift), kTileRoom / 4, kThreads,
                                kTileRoom + sizeof(uint64_t), load_box<kRank>, map(tensor.data()), place(at),
                                shift, uint32_t(box_bytes_));
  }

  void store_at(std::array<int, kRank> at, int shift = 0) const {
    const Values<uint16_t> tensor(std::vector<uint16_t>(bytes_ / 2, 0xabcd));
    device::launch(store_box<kRank>, 1, kThreads, kTileRoom, nullptr, map(tensor.data()), place(at), shift);
    golden::report("TMA store " + name_ + text_of(at, shift), tensor);
  }

 private:
  CUtensorMap map(const void* base) const {
    return device::tensor_map({.dtype = dtype_,
                               .base = base,
                               .size = {size_.begin(), size_.end()},
                               .stride = stride_,
                               .box = {box_.begin(), box_.end()},
                               .swizzle = swizzle_});
  }

  static Place place(std::array<int, kRank> at) {
    Place place{};
    for (int i = 0; i < kRank; ++i) place.at[i] = at[std::size_t(i)];
    return place;
  }

  static std::string text_of(std::array<int, kRank> at, int shift) {
    std::string text;
    for (int coordinate : at) text += (text.empty() ? " (" : ",") + std::to_string(coordinate);
    return text + ")" + (shift ? " +" + std::to_string(shift) : "");
  }

  DType dtype_;
  Swizzle swizzle_;
  std::array<uint64_t, kRank> size_;
  std::array<uint32_t, kRank> box_;
  std::vector<uint64_t> stride_;
  std::size_t bytes_, box_bytes_;
  std::string name_;
};

/// Tests each swizzle with rows of its span, for each element size, with the tile at the start of the pattern
/// and within it.
void swizzle_cases() {
  for (DType dtype : {DType::bf16, DType::e4m3, DType::f32}) {
    for (Swizzle swizzle : {Swizzle::b32, Swizzle::b64, Swizzle::b128}) {
      const uint32_t row = uint32_t(swizzle_bytes(swizzle) / size_of(dtype));
      const Tensor<2> tensor(dtype, swizzle, {2 * row, 80}, {row, 64});
      tensor.load_at({0, 0});
      tensor.load_at({int(row), 16}, 128);
      tensor.store_at({0, 0});
      tensor.store_at({int(row), 16}, 384);
    }
    const Tensor<2> plain(dtype, Swizzle::none, {256, 40}, {uint32_t(256 / size_of(dtype)), 32});
    plain.load_at({0, 0});
    plain.store_at({32, 4}, 128);
  }
}

/// Tests boxes inside the tensor, across its edges, before it and after it.
void edge_cases() {
  const Tensor<1> line(DType::f16, Swizzle::none, {1000}, {256});
  line.load_at({8});
  line.load_at({-104});
  line.load_at({904});
  line.store_at({904});
  line.store_at({2000});

  const Tensor<3> tiles(DType::bf16, Swizzle::b128, {96, 100, 3}, {64, 64, 1});
  const std::array<int, 3> places[] = {{0, 0, 0}, {64, 64, 1}, {40, 70, 0},
                                       {0, 0, 3}, {-8, -3, 2}, {8, 1, -1}};
  for (const auto& at : places) {
    tiles.load_at(at);
    if (at[0] >= 0 && at[2] >= 0) tiles.store_at(at);
  }

  const Tensor<4> four(DType::f16, Swizzle::b64, {32, 10, 3, 4}, {32, 8, 2, 3});
  four.load_at({0, 0, 0, 0});
  four.load_at({8, 4, 2, 3});
  four.load_at({-8, -1, -1, 2});
  four.store_at({8, 4, 2, 3});

  const Tensor<5> five(DType::e4m3, Swizzle::b32, {32, 7, 3, 2, 4}, {32, 5, 2, 2, 3});
  five.load_at({0, 0, 0, 0, 0});
  five.load_at({16, 5, 1, 1, 3});
  five.load_at({-16, -2, -1, -1, -1});
  five.store_at({16, 3, 2, 1, 2});
}

void phase_case() {
  const Values<uint16_t> tensor(std::vector<uint16_t>(64 * 8, 0x1234));
  const CUtensorMap map = device::tensor_map(
      {.dtype = DType::bf16, .base = tensor.data(), .size = {64, 8}, .stride = {128}, .box = {64, 8}});
  golden::run_block<uint32_t>("mbarrier phases", 16, 1, 1024, phases, map);
}

void run_cases() {
  phase_case();
  swizzle_cases();
  edge_cases();
}

const golden::Cases cases("hopper", &run_cases);

}  // namespace
}  // namespace flashbook

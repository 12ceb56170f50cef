/// \file
/// Errors in the use of TMA.
#include "common/ptx/tma.h"

#include <cmath>
#include <string>
#include <vector>

#include "common/device/launch.h"
#include "common/device/tensor_map.h"
#include "common/ptx/bulk_copy.h"
#include "common/ptx/mbarrier.h"
#include "tests/simulator/simulated.h"
#include "tests/values.h"

namespace flashbook {
namespace {

constexpr uint32_t kBytes = 8 * 64 * sizeof(float);  // per box

class Tma : public sim::SimulatorTest {
 protected:
  Tma() : tensor_(std::vector<float>(16 * 64, 1.0f)) { sim::options().async = sim::Async::lazy; }

  /// Returns boxes of 8 rows of a tensor of 16 rows.
  CUtensorMap map() const { return device::tensor_map(tiles()); }
  device::TensorTiles tiles() const {
    return {.dtype = DType::f32, .base = tensor_.data(), .size = {64, 16}, .stride = {256}, .box = {64, 8}};
  }

  static float* tile() { return dynamic_shared<float>(); }
  static uint64_t* barrier() { return reinterpret_cast<uint64_t*>(dynamic_shared<unsigned char>() + 8192); }
  static void begin(uint32_t arrivals = 1) {
    if (threadIdx.x == 0) {
      mbarrier_init(barrier(), arrivals);
      fence_mbarrier_init();
      name_mbarrier(barrier(), "full", 0);
    }
    __syncthreads();
  }

  static std::string error_of_block(unsigned threads, const std::function<void()>& body) {
    return sim::error_of(1, threads, 8192 + 64, body);
  }
  static void expect_contains(const std::string& text, const std::vector<std::string>& parts) {
    for (const std::string& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  /// Returns the error for a tensor map; empty if it is accepted.
  static std::string refusal_of(const device::TensorTiles& tiles) {
    try {
      device::tensor_map(tiles);
    } catch (const device::DeviceError& error) {
      return error.what();
    }
    return "";
  }

  Values<float> tensor_;
};

TEST_F(Tma, TileIsNaNUntilTheWait) {
  const CUtensorMap map = this->map();
  EXPECT_EQ(error_of_block(1,
                           [&] {
                             begin();
                             tile()[0] = 5;
                             mbarrier_arrive_expect_tx(barrier(), kBytes);
                             tma_load(tile(), map, barrier(), {0, 0});
                             EXPECT_TRUE(std::isnan(tile()[0]));
                             EXPECT_TRUE(std::isnan(tile()[kBytes / 4 - 1]));
                             mbarrier_wait(barrier(), 0);
                             EXPECT_EQ(tile()[0], 1.0f);
                             EXPECT_EQ(tile()[kBytes / 4 - 1], 1.0f);
                           }),
            "");
}

TEST_F(Tma, FenceOfAnotherThreadDoesNot) {
  const CUtensorMap map = this->map();
  expect_contains(error_of_block(32,
                                 [&] {
                                   if (threadIdx.x == 0) mbarrier_init(barrier(), 1);
                                   __syncthreads();
                                   if (threadIdx.x != 1) return;
                                   fence_mbarrier_init();
                                   tma_load(tile(), map, barrier(), {0, 0});
                                 }),
                  {"TMA before fence_mbarrier_init"});
}

TEST_F(Tma, BlockEndsBeforeTheLoadLands) {
  const CUtensorMap map = this->map();
  constexpr int kLine = __LINE__ + 6;
  expect_contains(
      error_of_block(32,
                     [&] {
                       begin();
                       if (threadIdx.x != 3) return;
                       tma_load(tile(), map, barrier(), {0, 0});
                     }),
      {"block (0,0,0) ends while tma_load at " + sim::line(kLine) + " is in flight to mbarrier full[0]",
       "thread (3,0,0)"});
}

TEST_F(Tma, WrongRankAndNoMap) {
  const CUtensorMap map = this->map();
  expect_contains(error_of_block(1,
                                 [&] {
                                   begin();
                                   tma_load(tile(), map, barrier(), {0, 0, 0});
                                 }),
                  {"gives 3 coordinates for a tensor map with 2 dimensions"});
  const CUtensorMap none{};
  expect_contains(error_of_block(1, [&] { tma_prefetch(none); }), {"this is not a tensor map"});
}

TEST_F(Tma, MapOfABufferThatWasFreed) {
  CUtensorMap map = this->map();
  {
    const Values<float> other(64 * 64);
    map = device::tensor_map(
        {.dtype = DType::f32, .base = other.data(), .size = {32, 64}, .stride = {128}, .box = {32, 8}});
  }
  expect_contains(error_of_block(1,
                                 [&] {
                                   begin();
                                   tma_load(tile(), map, barrier(), {0, 0});
                                 }),
                  {"tma_load at", "formerly an allocation of 16384 bytes"});
}

TEST_F(Tma, MapThatAKernelHasWritten) {
  const CUtensorMap map = this->map();
  const Values<CUtensorMap> slot(std::vector<CUtensorMap>{map});
  const auto error_with = [&](bool writes) {
    return error_of_block(1, [&] {
      begin();
      if (writes) *slot.data() = map;
      tma_prefetch(*slot.data());
    });
  };
  EXPECT_EQ(error_with(false), "");
  expect_contains(error_with(true),
                  {"a kernel has written the tensor map at global memory", "no tensormap.replace"});
}

TEST_F(Tma, BoxThatBeginsBetweenMultiplesOf16Bytes) {
  const CUtensorMap map = this->map();
  constexpr int kLine = __LINE__ + 3;
  expect_contains(error_of_block(1,
                                 [&] {
                                   tma_store(map, tile(), {2, 0});
                                 }),
                  {"tma_store at " + sim::line(kLine) + " at {2, 0} begins 8 bytes into a row",
                   "illegal instruction on an H200", "a multiple of 16 bytes"});
}

TEST_F(Tma, StoreReadsItsTileAsLateAsItsWait) {
  const CUtensorMap map = this->map();
  EXPECT_EQ(error_of_block(1,
                           [&] {
                             for (int row = 0; row < 2; ++row) {
                               float* source = tile() + row * 512;
                               for (int i = 0; i < 512; ++i) source[i] = 3;
                               tma_store(map, source, {0, 8 * row});
                               tma_store_commit();
                               source[0] = 4;
                             }
                             tma_store_wait_read<1>();
                             tile()[1] = tile()[513] = 5;
                             tma_store_wait<0>();
                           }),
            "");
  const std::vector<float> result = tensor_.get();
  EXPECT_EQ(result[0], 4.0f);
  EXPECT_EQ(result[1], 3.0f);
  EXPECT_EQ(result[2], 3.0f);
  EXPECT_EQ(result[512], 4.0f);
  EXPECT_EQ(result[513], 5.0f);
}

TEST_F(Tma, StoreThatHasReadItsTileHasNotHappened) {
  const CUtensorMap map = this->map();
  EXPECT_EQ(error_of_block(1,
                           [&] {
                             for (int i = 0; i < 512; ++i) tile()[i] = 3;
                             tma_store(map, tile(), {0, 0});
                             tma_store_commit();
                             tma_store_wait_read<0>();
                             tile()[0] = 4;
                             EXPECT_EQ(*tensor_.data(), 1.0f);
                             tma_store_wait<0>();
                             EXPECT_EQ(*tensor_.data(), 3.0f);
                             tma_store(map, tile(), {0, 8});
                             tma_store_commit();
                             tma_store_wait_read<0>();
                           }),
            "");
  EXPECT_EQ(tensor_.get()[512], 4.0f) << "it happens at the latest when the block ends";
}

TEST_F(Tma, OrderOfAdditionsFollowsTheSeed) {
  // 2^24 + 1 rounds to 2^24, so the order of the additions shows.
  const auto sum_of = [&](uint64_t seed) {
    sim::options().seed = seed;
    *tensor_.data() = 0;
    EXPECT_EQ(error_of_block(1,
                             [&] {
                               const float parts[] = {0x1p24f, 1, 1, -0x1p24f};
                               for (int i = 0; i < 4; ++i) {
                                 tile()[4 * i] = parts[i];
                                 for (int j = 1; j < 4; ++j) tile()[4 * i + j] = 0;
                                 bulk_reduce_add(tensor_.data(), tile() + 4 * i, 16);
                                 tma_store_commit();
                               }
                               tma_store_wait<0>();
                             }),
              "");
    return *tensor_.data();
  };
  EXPECT_EQ(sum_of(0), 0.0f) << "in order";
  EXPECT_EQ(sum_of(7), sum_of(7));
  bool differ = false;
  for (uint64_t seed = 1; seed < 9; ++seed) differ = differ || sum_of(seed) != 0;
  EXPECT_TRUE(differ);
}

TEST_F(Tma, MapsThatCudaWouldRefuse) {
  EXPECT_EQ(refusal_of(tiles()), "");
  auto bad = tiles();
  bad.base = tensor_.data() + 1;
  expect_contains(refusal_of(bad), {"must begin at a multiple of 16"});
  bad = tiles();
  bad.stride = {252};
  expect_contains(refusal_of(bad), {"dimension 1 has a stride of 252 bytes", "pad the rows"});
  bad = tiles();
  bad.box = {64, 257};
  expect_contains(refusal_of(bad), {"dimension 1 has a box of 257 elements"});
  bad = tiles();
  bad.box = {63, 8};
  expect_contains(refusal_of(bad), {"a row of the box has 252 bytes; it must be a multiple of 16"});
  bad = tiles();
  bad.swizzle = Swizzle::b128;
  expect_contains(refusal_of(bad), {"has 256 bytes; with this swizzle it must have 128"});
  bad = tiles();
  bad.size = {64, 0};
  expect_contains(refusal_of(bad), {"dimension 1 has 0 elements"});
  bad = tiles();
  bad.stride = {};
  expect_contains(refusal_of(bad), {"2 sizes need 1 strides and 2 box sizes; there are 0 and 2"});
  bad = {.dtype = DType::f16, .base = tensor_.data(), .size = {1, 1, 1, 1, 1, 1}, .stride = {}, .box = {}};
  expect_contains(refusal_of(bad), {"6 dimensions; a tensor has 1 to 5"});
}

}  // namespace
}  // namespace flashbook

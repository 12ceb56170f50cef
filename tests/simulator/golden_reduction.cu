/// \file
/// Golden cases of additions in global memory, bulk copies, atomic operations, and collectives of a warp or a
/// block.
#include <limits>
#include <string>
#include <vector>

#include "common/device/tensor_map.h"
#include "common/ptx/atomic.h"
#include "common/ptx/bulk_copy.h"
#include "common/ptx/dependent_launch.h"
#include "common/ptx/fence.h"
#include "common/ptx/math.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/tma.h"
#include "tests/simulator/golden.h"

namespace flashbook {
namespace {

constexpr unsigned kThreads = 128;
constexpr int kFloats = 1024;

/// Returns numbers of all magnitudes, zeros, subnormals and infinities; `seed` rotates the list.
std::vector<float> numbers(std::size_t count, unsigned seed) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float special[] = {0.0f,      -0.0f,      1.0f,          -1.0f,         0x1p-149f,       -0x1p-149f,
                           0x1p-127f, -0x1p-127f, 0x1.8p-126f,   -0x1p-126f,    0x1.fffffep127f, kInfinity,
                           3.5e10f,   0x1p-24f,   0x1.000002p0f, -0x1.000002p0f};
  std::vector<float> result(count);
  uint32_t state = seed * 2654435761u + 1;
  for (float& value : result) {
    state = state * 1664525u + 1013904223u;
    value = state >> 31 ? special[state >> 20 & 15] : float(int32_t(state)) * 0x1p-20f;
  }
  return result;
}

/// Fills shared memory with the terms, swizzled as the map requires, and adds them once.
enum class By { tensor, bulk, red, red2, red4, atomic, atomic2, atomic4, shared };

template <By kBy>
__global__ void add(const __grid_constant__ CUtensorMap map, int row, int column, const float* terms,
                    float* sum,
                    float* old) {  // [kFloats] each
  auto* tile = dynamic_shared<float>();
  for (int i = threadIdx.x; i < kFloats; i += kThreads) tile[i] = terms[i];
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0 && (kBy == By::tensor || kBy == By::bulk)) {
    if (kBy == By::tensor)
      tma_reduce_add(map, tile, {column, row});
    else
      bulk_reduce_add(sum, tile, kFloats * sizeof(float));
    tma_store_commit();
    tma_store_wait<0>();
  }
  const int i = threadIdx.x;
  if (kBy == By::red) red_add(sum + i, tile[i]);
  if (kBy == By::red2) red_add(reinterpret_cast<float2*>(sum) + i, reinterpret_cast<float2*>(tile)[i]);
  if (kBy == By::red4) red_add(reinterpret_cast<float4*>(sum) + i, reinterpret_cast<float4*>(tile)[i]);
  if (kBy == By::atomic) old[i] = atomicAdd(sum + i, tile[i]);
  if (kBy == By::atomic2)
    reinterpret_cast<float2*>(old)[i] =
        atomicAdd(reinterpret_cast<float2*>(sum) + i, reinterpret_cast<float2*>(tile)[i]);
  if (kBy == By::atomic4)
    reinterpret_cast<float4*>(old)[i] =
        atomicAdd(reinterpret_cast<float4*>(sum) + i, reinterpret_cast<float4*>(tile)[i]);
  if (kBy == By::shared) {
    atomicAdd(tile + i, sum[i]);
    old[i] = tile[i];
  }
}

template <By kBy>
void sum_case(const std::string& name, Swizzle swizzle = Swizzle::none, int row = 0, int column = 0) {
  const uint32_t columns = swizzle == Swizzle::none ? 64 : uint32_t(swizzle_bytes(swizzle) / 4);
  const uint32_t rows = kFloats / columns;
  const Values<float> terms(numbers(kFloats, 1)), sum(numbers(4 * kFloats, 2)),
      old(std::vector<float>(kFloats, 7.0f));
  const CUtensorMap map = device::tensor_map({.dtype = DType::f32,
                                              .base = sum.data(),
                                              .size = {2 * columns, rows + rows / 2},
                                              .stride = {2 * columns * 4},
                                              .box = {columns, rows},
                                              .swizzle = swizzle});
  device::launch(add<kBy>, 1, kThreads, kFloats * sizeof(float), nullptr, map, row, column, terms.data(),
                 sum.data(), old.data());
  golden::report(name, sum);
  if (kBy == By::atomic || kBy == By::atomic2 || kBy == By::atomic4 || kBy == By::shared)
    golden::report(name + ", what was there", old);
}

/// Loads bytes to shared memory and stores some of them elsewhere; then a bulk copy reads the results of
/// plain stores.
__global__ void copy(const uint32_t* from, uint32_t* to, int skip) {
  auto* room = dynamic_shared<uint32_t>();
  __shared__ uint64_t full;
  for (int i = threadIdx.x; i < kFloats; i += kThreads) room[i] = 0xeeeeeeee;
  fence_proxy_async();
  if (threadIdx.x == 0) {
    mbarrier_init(&full, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&full, 2048);
    bulk_load(room + skip, from + 4, 2048, &full);
  }
  mbarrier_wait(&full, 0);
  if (threadIdx.x == 0) {
    bulk_store(to + skip, room + 4, 3072);
    tma_store_commit();
    tma_store_wait<0>();
  }
  __syncthreads();
  to[threadIdx.x] = threadIdx.x * 3;
  fence_proxy_async_global();
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&full, 512);
    bulk_load(room, to, 512, &full);
  }
  mbarrier_wait(&full, 1);
  to[kFloats + threadIdx.x] = room[threadIdx.x];
}

/// Executes one thread's atomic operations in order; writes previous and final values.
__global__ void operate(int* i, unsigned* u, unsigned long long* l, int* old) {  // [4], [4], [2], [32]
  int n = 0;
  old[n++] = atomicMin(i, 3);
  old[n++] = atomicMin(i, -7);
  old[n++] = atomicMin(i, 5);
  old[n++] = atomicMax(i, 11);
  old[n++] = atomicAnd(i + 1, 0x0ff0);
  old[n++] = atomicOr(i + 1, 0x5005);
  old[n++] = atomicXor(i + 1, -1);
  old[n++] = atomicSub(i + 2, 1 << 30);
  old[n++] = atomicSub(i + 2, 1 << 30);
  old[n++] = int(atomicMin(u, 0x80000001u));
  old[n++] = int(atomicSub(u + 1, 5u));
  for (unsigned limit : {3u, 3u, 3u, 3u, 1u, 0u}) old[n++] = int(atomicInc(u + 2, limit));
  for (unsigned limit : {3u, 3u, 9u, 2u, 0u}) old[n++] = int(atomicDec(u + 3, limit));
  old[n++] = int(atomicMin(l, 1ull << 40) >> 32);
  old[n++] = int(atomicAnd(l + 1, ~1ull) >> 32);
  old[n++] = int(atomicOr(l + 1, 1ull << 33) >> 32);
  old[n++] = int(atomicXor(l + 1, 3ull << 33) >> 32);
  while (n < 32) old[n++] = 0;
}

/// Words written with a release and read with an acquire.
__global__ void hand_over(unsigned* words, unsigned long long* long_words, unsigned* out) {  // [4], [4], [16]
  if (threadIdx.x != 0) return;
  int n = 0;
  store_release(words, 0x12345678u);
  store_release(long_words, 0x123456789abcdef0ull);
  out[n++] = load_acquire(words);
  out[n++] = unsigned(load_acquire(long_words) >> 32);
  red_add_release(words, 0xfffffff0u);
  red_add_release(long_words, ~0ull);
  out[n++] = load_acquire(words);
  out[n++] = unsigned(load_acquire(long_words));
  out[n++] = atomic_add_acq_rel(words, 7u);
  out[n++] = unsigned(atomic_add_acq_rel(long_words, 1ull << 32) >> 32);
  out[n++] = load_acquire(words);
  out[n++] = unsigned(load_acquire(long_words) >> 32);
  while (n < 16) out[n++] = 0;
}

__global__ void ask_the_warp(uint32_t mask, uint32_t* out) {  // [32, 16]
  const uint32_t lane = threadIdx.x;
  uint32_t* mine = out + 16 * lane;
  for (int i = 0; i < 16; ++i) mine[i] = 0;
  __syncwarp();
  mine[0] = __activemask();
  if (!(mask >> lane & 1)) return;
  const uint32_t bits = lane * 2654435761u;
  mine[1] = __activemask();
  mine[2] = uint32_t(__reduce_add_sync(mask, int(bits)));
  mine[3] = uint32_t(__reduce_min_sync(mask, int(bits)));
  mine[4] = uint32_t(__reduce_max_sync(mask, int(bits)));
  mine[5] = __reduce_add_sync(mask, bits);
  mine[6] = __reduce_min_sync(mask, bits);
  mine[7] = __reduce_max_sync(mask, bits);
  mine[8] = __reduce_and_sync(mask, bits | 0x40000000);
  mine[9] = __reduce_or_sync(mask, bits & 0xffff0ff7);
  mine[10] = __reduce_xor_sync(mask, bits);
  mine[11] = __match_any_sync(mask, bits >> 30);
  mine[12] = __match_any_sync(mask, lane % 4 == 0 ? 0.0f : -0.0f);
  int all = 5;
  mine[13] = __match_all_sync(mask, (unsigned long long)(bits) >> 32, &all);
  mine[14] = uint32_t(all);
  mine[15] = __match_all_sync(mask, bits >> 31, &all) + uint32_t(all);
}

__global__ void ask_the_block(int* out) {  // [kThreads, 8]
  const int self = threadIdx.x;
  int* mine = out + 8 * self;
  mine[0] = __syncthreads_count(self % 3);
  mine[1] = __syncthreads_or(self == 3 ? 8 : 0);
  mine[2] = __syncthreads_or(0);
  mine[3] = __syncthreads_and(self + 2);
  mine[4] = __syncthreads_and(self);
  __nanosleep(unsigned(self));
  mine[5] = __syncthreads_count(self >= 0);
  mine[6] = mine[7] = self;
}

/// Arguments for which tanh is exact.
__global__ void tangents(const float* in, float* out) { out[threadIdx.x] = tanh_approx(in[threadIdx.x]); }

__global__ void write_squares(int* words) {
  let_dependents_launch();
  words[threadIdx.x] = int(threadIdx.x * threadIdx.x);
}
__global__ void add_to_squares(int* words) {
  wait_for_launch_before();
  words[threadIdx.x] += 5;
}

void run_cases() {
  sum_case<By::tensor>("TMA reduce-add");
  sum_case<By::tensor>("TMA reduce-add over the edge", Swizzle::none, 12, 80);
  sum_case<By::tensor>("TMA reduce-add b32", Swizzle::b32, 64, 8);
  sum_case<By::tensor>("TMA reduce-add b64", Swizzle::b64, 40, 4);
  sum_case<By::tensor>("TMA reduce-add b128", Swizzle::b128, 0, 32);
  sum_case<By::bulk>("bulk reduce-add");
  sum_case<By::red>("red of float");
  sum_case<By::red2>("red of float2");
  sum_case<By::red4>("red of float4");
  sum_case<By::atomic>("atomicAdd of float");
  sum_case<By::atomic2>("atomicAdd of float2");
  sum_case<By::atomic4>("atomicAdd of float4");
  sum_case<By::shared>("atomicAdd in shared memory");

  for (const int skip : {0, 4, 256}) {
    std::vector<uint32_t> words(kFloats);
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = uint32_t(i) * 2654435761u;
    const Values<uint32_t> from(words), to(std::vector<uint32_t>(2 * kFloats, 0xabababab));
    device::launch(copy, 1, kThreads, kFloats * 4, nullptr, from.data(), to.data(), skip);
    golden::report("bulk copies +" + std::to_string(4 * skip), to);
  }

  const Values<int> i(std::vector<int>{9, 0x7ffff, 5, 0}), old(32);
  const Values<unsigned> u(std::vector<unsigned>{0xfffffffe, 3, 2, 1});
  const Values<unsigned long long> l(std::vector<unsigned long long>{1ull << 50, 0x2ffffffffull});
  device::launch(operate, 1, 1, 0, nullptr, i.data(), u.data(), l.data(), old.data());
  golden::report("atomic operations of int", i);
  golden::report("atomic operations of unsigned", u);
  golden::report("atomic operations of 64 bits", l);
  golden::report("atomic operations, what was there", old);

  const Values<unsigned> words(std::vector<unsigned>(4)), seen(16);
  const Values<unsigned long long> long_words(std::vector<unsigned long long>(4));
  device::launch(hand_over, 1, 32, 0, nullptr, words.data(), long_words.data(), seen.data());
  golden::report("acquire and release", seen);

  for (const uint32_t mask : {0xffffffffu, 0x0000ffffu, 0x10203040u})
    golden::run_case<uint32_t>("warp asks with mask " + std::to_string(mask), 32 * 16, ask_the_warp, mask);
  golden::run_block<int>("block asks", kThreads * 8, kThreads, 0, ask_the_block);

  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Values<float> x(
      std::vector<float>{0.0f, -0.0f, kInfinity, -kInfinity, 20.0f, -20.0f, 0x1p-20f, -0x1p-30f});
  golden::run_block<float>("tanh.approx", 8, 8, 0, tangents, x.data());

  const Values<int> squares(64);
  device::launch(write_squares, 1, 64, 0, nullptr, squares.data());
  device::launch_dependent(add_to_squares, 1, 64, 0, nullptr, squares.data());
  golden::report("dependent launch", squares);
}

const golden::Cases cases("reduction", &run_cases);

}  // namespace
}  // namespace flashbook

/// \file
/// What CUDA promises, asked of the machine of this build: the simulator build asks the simulator, the GPU
/// build asks the hardware. The expected values are the same.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "common/device/launch.h"
#include "common/ptx/barrier.h"
#include "common/ptx/convert.h"
#include "common/ptx/math.h"
#include "tests/require_gpu.h"
#include "tests/values.h"

namespace flashbook {
namespace {

constexpr unsigned kAll = 0xffffffff;

// Kernels. Each thread writes one value, or a few, to its own place.

__global__ void shuffle_idx(int* out, int source, int width) {
  out[threadIdx.x] = __shfl_sync(kAll, int(threadIdx.x), source, width);
}
__global__ void shuffle_up(int* out, int delta, int width) {
  out[threadIdx.x] = __shfl_up_sync(kAll, int(threadIdx.x), unsigned(delta), width);
}
__global__ void shuffle_down(int* out, int delta, int width) {
  out[threadIdx.x] = __shfl_down_sync(kAll, int(threadIdx.x), unsigned(delta), width);
}
__global__ void shuffle_xor(int* out, int lane_mask, int width) {
  out[threadIdx.x] = __shfl_xor_sync(kAll, int(threadIdx.x), lane_mask, width);
}

/// Maximum and sum of a warp's values by butterflies, as every softmax here does it.
__global__ void reduce(const float* in, float* maximum, float* sum) {
  float m = in[threadIdx.x], s = m;
  for (int step = 16; step > 0; step /= 2) {
    m = fmaxf(m, __shfl_xor_sync(kAll, m, step));
    s += __shfl_xor_sync(kAll, s, step);
  }
  maximum[threadIdx.x] = m;
  sum[threadIdx.x] = s;
}

/// Two halves of a warp with masks of their own.
__global__ void shuffle_in_halves(int* out) {
  const int lane = threadIdx.x;
  if (lane < 16)
    out[lane] = __shfl_xor_sync(0x0000ffff, lane, 15);
  else
    out[lane] = __shfl_xor_sync(0xffff0000, lane, 15);
}

__global__ void vote(unsigned* out, unsigned yes) {
  const int predicate = yes >> (threadIdx.x % 32) & 1;
  out[threadIdx.x * 3] = __ballot_sync(kAll, predicate);
  out[threadIdx.x * 3 + 1] = unsigned(__any_sync(kAll, predicate) != 0);
  out[threadIdx.x * 3 + 2] = unsigned(__all_sync(kAll, predicate) != 0);
}

/// Lane 0 hands a value to its warp through shared memory, round after round.
__global__ void hand_over_in_a_warp(int* out, int rounds) {
  __shared__ int mailbox[4];
  int sum = 0;
  const int warp = threadIdx.x / 32;
  for (int round = 0; round < rounds; ++round) {
    if (threadIdx.x % 32 == unsigned(round) % 32) mailbox[warp] = round * (warp + 1);
    __syncwarp();
    sum += mailbox[warp];
    __syncwarp();
  }
  out[threadIdx.x] = sum;
}

/// A tile through static shared memory, read in the other direction.
__global__ void transpose(const float* in, float* out) {
  __shared__ float tile[16][17];
  tile[threadIdx.y][threadIdx.x] = in[threadIdx.y * 16 + threadIdx.x];
  __syncthreads();
  out[threadIdx.y * 16 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

/// The same through dynamic shared memory, more of it than a block gets without being asked for.
__global__ void rotate(const float4* in, float4* out, int count, int by) {
  float4* tile = dynamic_shared<float4>();
  for (int i = threadIdx.x; i < count; i += blockDim.x) tile[i] = in[i];
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += blockDim.x) out[i] = tile[(i + by) % count];
}

/// Threads that have exited are not waited for.
__global__ void leave_early(int* out) {
  __shared__ int count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  if (threadIdx.x >= 64) return;
  atomicAdd(&count, 1);
  __syncthreads();
  out[threadIdx.x] = count;
}

/// A producer warp and two consumer warps: the consumers wait for full, the producer for empty.
__global__ void produce_and_consume(int* out, int rounds) {
  constexpr int kFull = 1, kEmpty = 2;
  __shared__ int tile[32];
  int sum = 0;
  for (int round = 0; round < rounds; ++round) {
    if (threadIdx.x < 32) {
      if (round > 0) named_barrier_sync<kEmpty, 96>();  // both consumers have read the tile
      tile[threadIdx.x] = round * 32 + int(threadIdx.x);
      named_barrier_arrive<kFull, 96>();
    } else {
      named_barrier_sync<kFull, 96>();
      sum += tile[31 - threadIdx.x % 32];
      if (round + 1 < rounds) named_barrier_arrive<kEmpty, 96>();
    }
  }
  out[threadIdx.x] = sum;
}

/// Two warps take turns, as two warpgroups of a pingpong kernel do. Each notes the ticket that it draws.
__global__ void take_turns(int* out, int rounds) {
  constexpr int kFirst = 3, kSecond = 4;
  __shared__ int ticket;
  if (threadIdx.x == 0) ticket = 0;
  __syncthreads();
  const bool first = threadIdx.x < 32;
  if (!first) named_barrier_arrive<kFirst, 64>();  // the second warp lets the first one begin
  for (int round = 0; round < rounds; ++round) {
    if (first)
      named_barrier_sync<kFirst, 64>();
    else
      named_barrier_sync<kSecond, 64>();
    if (threadIdx.x % 32 == 0) out[2 * round + !first] = ticket++;
    if (first)
      named_barrier_arrive<kSecond, 64>();
    else if (round + 1 < rounds)
      named_barrier_arrive<kFirst, 64>();
  }
}

__global__ void count_all(int* i, unsigned* u, unsigned long long* l, float* f) {
  atomicAdd(i, 1);
  atomicAdd(u, 2u);
  atomicAdd(l, 3ull);
  atomicAdd(f, 1.0f);
  atomicMax(i + 1, int(blockIdx.x * blockDim.x + threadIdx.x) - 50);
  atomicMax(u + 1, blockIdx.x * blockDim.x + threadIdx.x);
}

/// What the slot holds afterwards and what was taken out of it are, together, all numbers once.
__global__ void exchange(unsigned* slot, unsigned* out) {
  const unsigned self = blockIdx.x * blockDim.x + threadIdx.x;
  out[self] = atomicExch(slot, self + 1);
}

/// Adds by compare and swap.
__global__ void add_by_swapping(unsigned* sum) {
  unsigned old = *sum, seen;
  do {
    seen = old;
    old = atomicCAS(sum, seen, seen + 1);
  } while (old != seen);
}

/// The last block to finish sums up: a flag, a fence and an atomic ticket.
__global__ void last_block_sums(const int* in, int* partial, unsigned* ticket, int* out) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = in[blockIdx.x] * 2;
    __threadfence();
    last = atomicAdd(ticket, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last || threadIdx.x > 0) return;
  const volatile int* written = partial;  // by other multiprocessors: not to be taken from this one's L1
  int sum = 0;
  for (unsigned block = 0; block < gridDim.x; ++block) sum += written[block];
  *out = sum;
}

template <typename T>
__global__ void round_trip(const float* in, float* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = to_float(from_float<T>(in[i]));
}

/// Element i in the low half of a register, its neighbour in the high half: by one instruction, and one by
/// one.
template <typename T>
__global__ void pack_neighbours(const float* in, uint32_t* packed, T* single, int count) {
  const int i = threadIdx.x;
  packed[i] = pack<T>(in[i], in[(i + 1) % count]);
  single[2 * i] = from_float<T>(in[i]);
  single[2 * i + 1] = from_float<T>(in[(i + 1) % count]);
}

__global__ void powers_of_two(const float* in, float* out) {
  out[threadIdx.x] = exp2_approx(in[threadIdx.x]);
}

__global__ void positions(unsigned* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  out[block * threads + thread] = threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z + 1000 * blockIdx.x +
                                  10000 * blockIdx.y + 100000 * blockIdx.z;
}

/// What the lanes of a mask come to together.
__global__ void reduce_in_a_warp(int* out, unsigned mask) {  // [threads, 8]
  const int lane = threadIdx.x;
  if (!(mask >> lane & 1)) return;
  const int value = (lane * 37 + 11) % 64 - 32;
  const auto bits = 0x80000000u | unsigned(value * value);
  int* mine = out + 8 * lane;
  mine[0] = __reduce_add_sync(mask, value);
  mine[1] = __reduce_min_sync(mask, value);
  mine[2] = __reduce_max_sync(mask, value);
  mine[3] = int(__reduce_max_sync(mask, bits));
  mine[4] = int(__reduce_and_sync(mask, bits));
  mine[5] = int(__reduce_or_sync(mask, bits));
  mine[6] = int(__reduce_xor_sync(mask, bits));
  mine[7] = int(__reduce_add_sync(mask, bits));
}

/// Which lanes of a mask have the same value.
__global__ void match_values(unsigned* out, unsigned mask) {  // [threads, 4]
  const unsigned lane = threadIdx.x;
  if (!(mask >> lane & 1)) return;
  unsigned* mine = out + 4 * lane;
  mine[0] = __match_any_sync(mask, lane % 5);
  mine[1] = __match_any_sync(mask, (unsigned long long)(lane % 3) << 40);
  int all = 0;
  mine[2] = __match_all_sync(mask, 7, &all) + unsigned(all);
  mine[3] = __match_all_sync(mask, lane / 31, &all) + unsigned(all);
}

/// Lanes that go the same way count themselves by one atomic operation, whoever they are.
__global__ void count_together(unsigned* counter, unsigned* places) {  // [3], [threads]
  const unsigned lane = threadIdx.x % 32;
  unsigned* mine = counter + lane % 3;
  const unsigned active = __activemask();
  const unsigned peers = __match_any_sync(active, lane % 3);
  const int leader = __ffs(int(peers)) - 1;
  unsigned first = 0;
  if (int(lane) == leader) first = atomicAdd(mine, unsigned(__popc(int(peers))));
  first = __shfl_sync(peers, first, leader);
  places[threadIdx.x] = first + unsigned(__popc(int(peers & ((1u << lane) - 1))));
}

/// Barriers that count.
__global__ void count_at_barriers(int* out) {  // [threads, 4]
  const int self = threadIdx.x;
  int* mine = out + 4 * self;
  mine[0] = __syncthreads_count(self % 3 == 0);
  mine[1] = __syncthreads_or(self == 17);
  mine[2] = __syncthreads_and(self != 17);
  mine[3] = (__syncthreads_and(self >= 0) != 0) + 2 * (__syncthreads_or(self < 0) != 0);
}

/// Each operation by all threads on a word of its own.
__global__ void change_words(int* i, unsigned* u, unsigned long long* l) {  // [3], [6], [2]
  const int self = int(threadIdx.x + blockIdx.x * blockDim.x);
  atomicMin(i, -self);
  atomicSub(i + 1, self);
  atomicXor(i + 2, self);
  atomicMin(u, unsigned(self) + 5u);
  atomicAnd(u + 1, ~(1u << self % 32));
  atomicOr(u + 2, 1u << self % 29);
  atomicInc(u + 3, 99u);
  atomicDec(u + 4, 99u);
  atomicSub(u + 5, 3u);
  atomicMin(l, (unsigned long long)(self) << 33);
  atomicOr(l + 1, 1ull << self % 60);
}

/// One warp waits, asleep, for what another says.
__global__ void sleep_until_told(volatile int* flag, int* out) {
  if (threadIdx.x == 32) {
    __nanosleep(1000);
    *flag = 5;
  }
  if (threadIdx.x != 0) return;
  while (*flag == 0) __nanosleep(100);
  *out = *flag;
}

__global__ void hyperbolic_tangents(const float* in, float* out) {
  out[threadIdx.x] = tanh_approx(in[threadIdx.x]);
}

__global__ void nothing() {}

using BothMachines = MachineTest;

/// Compares one of the four shuffles, for every argument and width, with what its definition says.
void expect_shuffle(void (*kernel)(int*, int, int), const std::function<int(int, int, int)>& source_of) {
  for (int width : {1, 2, 4, 8, 16, 32}) {
    for (int argument = 0; argument < 33; ++argument) {
      Values<int> out(64);
      device::launch(kernel, 1, 64, 0, nullptr, out.data(), argument, width);
      const std::vector<int> got = out.get();
      for (int thread = 0; thread < 64; ++thread)
        ASSERT_EQ(got[std::size_t(thread)], thread / 32 * 32 + source_of(thread % 32, argument, width))
            << "thread " << thread << ", argument " << argument << ", width " << width;
    }
  }
}

TEST_F(BothMachines, ShuffleFromALane) {
  expect_shuffle(shuffle_idx,
                 [](int lane, int source, int width) { return lane / width * width + source % width; });
}

TEST_F(BothMachines, ShuffleUp) {
  expect_shuffle(shuffle_up, [](int lane, int delta, int width) {
    delta %= 32;  // the instruction takes five bits
    return lane % width >= delta ? lane - delta : lane;
  });
}

TEST_F(BothMachines, ShuffleDown) {
  expect_shuffle(shuffle_down, [](int lane, int delta, int width) {
    delta %= 32;
    return lane % width + delta < width ? lane + delta : lane;
  });
}

TEST_F(BothMachines, ShuffleXor) {
  expect_shuffle(shuffle_xor, [](int lane, int lane_mask, int width) {
    const int source = lane ^ (lane_mask % 32);
    return source / width <= lane / width ? source : lane;  // an earlier part may be read, a later one not
  });
}

TEST_F(BothMachines, WarpsReduceByButterflies) {
  std::vector<float> in(64);
  for (int i = 0; i < 64; ++i) in[std::size_t(i)] = float((i * 37) % 64) - 20;
  Values<float> values(in), maximum(64), sum(64);
  device::launch(reduce, 1, 64, 0, nullptr, values.data(), maximum.data(), sum.data());
  for (int warp = 0; warp < 2; ++warp) {
    float m = -1000, s = 0;
    for (int lane = 0; lane < 32; ++lane) {
      m = std::max(m, in[std::size_t(warp * 32 + lane)]);
      s += in[std::size_t(warp * 32 + lane)];
    }
    for (int lane = 0; lane < 32; ++lane) {
      EXPECT_EQ(maximum.get()[std::size_t(warp * 32 + lane)], m);
      EXPECT_EQ(sum.get()[std::size_t(warp * 32 + lane)], s);
    }
  }
}

TEST_F(BothMachines, HalvesOfAWarpShuffleAmongThemselves) {
  Values<int> out(32);
  device::launch(shuffle_in_halves, 1, 32, 0, nullptr, out.data());
  for (int lane = 0; lane < 32; ++lane) EXPECT_EQ(out.get()[std::size_t(lane)], lane ^ 15);
}

TEST_F(BothMachines, Votes) {
  for (unsigned yes : {0u, 1u, 0x80000000u, 0x00ff00ffu, 0xfffffffeu, 0xffffffffu}) {
    Values<unsigned> out(64 * 3);
    device::launch(vote, 1, 64, 0, nullptr, out.data(), yes);
    const auto got = out.get();
    for (std::size_t thread = 0; thread < 64; ++thread) {
      EXPECT_EQ(got[thread * 3], yes);
      EXPECT_EQ(got[thread * 3 + 1], unsigned(yes != 0));
      EXPECT_EQ(got[thread * 3 + 2], unsigned(yes == kAll));
    }
  }
}

TEST_F(BothMachines, SyncwarpOrdersSharedMemory) {
  Values<int> out(128);
  device::launch(hand_over_in_a_warp, 1, 128, 0, nullptr, out.data(), 100);
  for (int thread = 0; thread < 128; ++thread)
    EXPECT_EQ(out.get()[std::size_t(thread)], 4950 * (thread / 32 + 1)) << thread;
}

TEST_F(BothMachines, StaticSharedMemory) {
  std::vector<float> in(256), expected(256);
  for (std::size_t row = 0; row < 16; ++row)
    for (std::size_t column = 0; column < 16; ++column)
      in[row * 16 + column] = expected[column * 16 + row] = float(row * 100 + column);
  Values<float> values(in), out(256);
  device::launch(transpose, 1, dim3(16, 16), 0, nullptr, values.data(), out.data());
  EXPECT_EQ(out.get(), expected);
}

TEST_F(BothMachines, DynamicSharedMemoryUpToTheLimit) {
  for (int bytes : {16, 48 * 1024, 48 * 1024 + 16, 160 * 1024}) {
    const int count = bytes / 16;
    std::vector<float> in(std::size_t(bytes / 4)), expected(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = float(i);
    for (std::size_t i = 0; i < in.size(); ++i) expected[i] = in[(i + 20) % in.size()];
    Values<float> values(in), out(in.size());
    device::launch(rotate, 1, 256, std::size_t(bytes), nullptr,
                   reinterpret_cast<const float4*>(values.data()), reinterpret_cast<float4*>(out.data()),
                   count, 5);
    EXPECT_EQ(out.get(), expected) << bytes;
  }
}

TEST_F(BothMachines, ExitedThreadsAreNotWaitedFor) {
  Values<int> out(64);
  device::launch(leave_early, 1, 128, 0, nullptr, out.data());
  EXPECT_EQ(out.get(), std::vector<int>(64, 64));
}

TEST_F(BothMachines, NamedBarriersHandATileOver) {
  constexpr int kRounds = 50;
  Values<int> out(96);
  device::launch(produce_and_consume, 1, 96, 0, nullptr, out.data(), kRounds);
  const auto got = out.get();
  for (int thread = 32; thread < 96; ++thread)
    EXPECT_EQ(got[std::size_t(thread)], 32 * (kRounds * (kRounds - 1) / 2) + kRounds * (31 - thread % 32))
        << thread;
}

TEST_F(BothMachines, NamedBarriersLetWarpsTakeTurns) {
  constexpr int kRounds = 20;
  Values<int> out(2 * kRounds);
  device::launch(take_turns, 1, 64, 0, nullptr, out.data(), kRounds);
  for (int turn = 0; turn < 2 * kRounds; ++turn) EXPECT_EQ(out.get()[std::size_t(turn)], turn);
}

TEST_F(BothMachines, AtomicsLoseNothing) {
  constexpr unsigned kBlocks = 100, kThreads = 96;
  Values<int> i(std::vector<int>{0, -1000});
  Values<unsigned> u(std::vector<unsigned>{0, 0});
  Values<unsigned long long> l(std::vector<unsigned long long>{1ull << 40});
  Values<float> f(std::vector<float>{0});
  device::launch(count_all, kBlocks, kThreads, 0, nullptr, i.data(), u.data(), l.data(), f.data());
  EXPECT_EQ(i.get(), (std::vector<int>{9600, 9599 - 50}));
  EXPECT_EQ(u.get(), (std::vector<unsigned>{19200, 9599}));
  EXPECT_EQ(l.get()[0], (1ull << 40) + 28800);
  EXPECT_EQ(f.get()[0], 9600.0f);
}

TEST_F(BothMachines, ExchangeGivesEachValueToOneThread) {
  Values<unsigned> slot(std::vector<unsigned>{0}), out(10 * 64);
  device::launch(exchange, 10, 64, 0, nullptr, slot.data(), out.data());
  std::vector<unsigned> all = out.get();
  all.push_back(slot.get()[0]);
  std::sort(all.begin(), all.end());
  for (unsigned n = 0; n <= 640; ++n) EXPECT_EQ(all[n], n);
}

TEST_F(BothMachines, CompareAndSwapLosesNothing) {
  Values<unsigned> sum(std::vector<unsigned>{5});
  device::launch(add_by_swapping, 50, 64, 0, nullptr, sum.data());
  EXPECT_EQ(sum.get()[0], 5u + 3200u);
}

TEST_F(BothMachines, TheLastBlockSeesWhatTheOthersWrote) {
  std::vector<int> in(200);
  int expected = 0;
  for (int i = 0; i < 200; ++i) expected += 2 * (in[std::size_t(i)] = i * i);
  Values<int> values(in), partial(200), out(1);
  Values<unsigned> ticket(std::vector<unsigned>{0});
  device::launch(last_block_sums, 200, 64, 0, nullptr, values.data(), partial.data(), ticket.data(),
                 out.data());
  EXPECT_EQ(out.get()[0], expected);
}

/// Round trips through 16 bits must give the same bits on both machines; the values lie around every rounding
/// there is.
template <typename T>
std::vector<float> rounded(const std::vector<float>& in) {
  Values<float> values(in), out(in.size());
  device::launch(round_trip<T>, unsigned(in.size() + 255) / 256, 256, 0, nullptr, values.data(), out.data(),
                 int(in.size()));
  return out.get();
}

TEST_F(BothMachines, ConversionsRoundToNearestEven) {
  const std::vector<float> in = {
      1.0f,     1.0f + 0x1p-11f, 1.0f + 3 * 0x1p-11f, 65519.0f,       65520.0f,           -65520.0f,
      0x1p-24f, 0x1p-25f,        0x1.8p-25f,          1.0f + 0x1p-8f, 1.0f + 3 * 0x1p-8f, -0.0f};
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> as_half = {1.0f,     1.0f,           1.0f + 0x1p-9f,     65504.0f,
                                      infinity, -infinity,      0x1p-24f,           0.0f,
                                      0x1p-24f, 1.0f + 0x1p-8f, 1.0f + 3 * 0x1p-8f, -0.0f};
  EXPECT_EQ(rounded<__half>(in), as_half);
  EXPECT_EQ(rounded<float>(in), in);
  const auto as_bfloat = rounded<__nv_bfloat16>(in);
  EXPECT_EQ(as_bfloat[0], 1.0f);
  EXPECT_EQ(as_bfloat[9], 1.0f);
  EXPECT_EQ(as_bfloat[10], 1.0f + 0x1p-6f);
  EXPECT_EQ(as_bfloat[3], 65536.0f);
}

template <typename T>
void expect_packed(const std::vector<float>& in) {
  const int count = int(in.size());
  Values<float> values(in);
  Values<uint32_t> packed(count);
  Values<T> single(2 * count);
  device::launch(pack_neighbours<T>, 1, count, 0, nullptr, values.data(), packed.data(), single.data(),
                 count);
  const auto registers = packed.get();
  const auto elements = single.get();
  for (int i = 0; i < count; ++i) {
    uint32_t both;
    std::memcpy(&both, &elements[2 * i], sizeof(both));
    EXPECT_EQ(registers[i], both) << "of " << in[i] << " and " << in[(i + 1) % count];
  }
}

TEST_F(BothMachines, PairsArePackedWithTheFirstInTheLowHalf) {
  const std::vector<float> in = {1.0f,     -2.5f,    65520.0f, 1.0f + 0x1p-11f, 1.0f + 3 * 0x1p-8f,
                                 0x1p-24f, 0x1p-25f, -0.0f,    1.0f + 0x1p-8f,  0x1p127f};
  expect_packed<__half>(in);
  expect_packed<__nv_bfloat16>(in);
}

TEST_F(BothMachines, Exp2IsGoodToAFewUnitsInTheLastPlace) {
  std::vector<float> in(256);
  for (int i = 0; i < 256; ++i) in[std::size_t(i)] = float(i) * -0.37f;
  in[255] = -std::numeric_limits<float>::infinity();
  Values<float> values(in), out(256);
  device::launch(powers_of_two, 1, 256, 0, nullptr, values.data(), out.data());
  const auto got = out.get();
  for (std::size_t i = 0; i < 256; ++i)
    EXPECT_NEAR(got[i], std::exp2(in[i]), std::exp2(in[i]) * 0x1p-21f) << in[i];
}

TEST_F(BothMachines, WarpsReduceAndCompareByOneInstruction) {
  for (const unsigned mask : {kAll, 0x0f0f1234u, 0x00000010u}) {
    const Values<int> out(std::vector<int>(32 * 8));
    const Values<unsigned> matches(std::vector<unsigned>(32 * 4));
    device::launch(reduce_in_a_warp, 1, 32, 0, nullptr, out.data(), mask);
    device::launch(match_values, 1, 32, 0, nullptr, matches.data(), mask);
    int sum = 0, least = 100, most = -100;
    unsigned all = kAll, any = 0, odd = 0, bits_sum = 0, bits_most = 0;
    const auto value = [](int lane) { return (lane * 37 + 11) % 64 - 32; };
    for (int lane = 0; lane < 32; ++lane) {
      if (!(mask >> lane & 1)) continue;
      const auto bits = 0x80000000u | unsigned(value(lane) * value(lane));
      sum += value(lane), least = std::min(least, value(lane)), most = std::max(most, value(lane));
      all &= bits, any |= bits, odd ^= bits, bits_sum += bits, bits_most = std::max(bits_most, bits);
    }
    const std::vector<int> expected = {sum,      least,    most,     int(bits_most),
                                       int(all), int(any), int(odd), int(bits_sum)};
    const auto seen = out.get();
    const auto matched = matches.get();
    for (int lane = 0; lane < 32; ++lane) {
      if (!(mask >> lane & 1)) continue;
      const std::vector<int> mine(seen.begin() + 8 * lane, seen.begin() + 8 * lane + 8);
      ASSERT_EQ(mine, expected) << "lane " << lane << ", mask " << mask;
      unsigned by_five = 0, by_three = 0;
      for (int other = 0; other < 32; ++other) {
        by_five |= unsigned((mask >> other & 1) != 0 && other % 5 == lane % 5) << other;
        by_three |= unsigned((mask >> other & 1) != 0 && other % 3 == lane % 3) << other;
      }
      ASSERT_EQ(matched[std::size_t(4 * lane)], by_five) << "lane " << lane;
      ASSERT_EQ(matched[std::size_t(4 * lane + 1)], by_three) << "lane " << lane;
      ASSERT_EQ(matched[std::size_t(4 * lane + 2)], mask + 1u);
      ASSERT_EQ(matched[std::size_t(4 * lane + 3)], mask == kAll ? 0 : mask + 1u) << "lane 31 differs";
    }
  }
}

TEST_F(BothMachines, LanesThatAreActiveTogetherCountTogether) {
  const Values<unsigned> counter(std::vector<unsigned>(3)), places(96);
  device::launch(count_together, 1, 96, 0, nullptr, counter.data(), places.data());
  EXPECT_EQ(counter.get(), (std::vector<unsigned>{33, 33, 30}));
  auto seen = places.get();
  std::sort(seen.begin(), seen.end());
  for (unsigned i = 0; i < 96; ++i) EXPECT_EQ(seen[i], i < 90 ? i / 3 : 30 + (i - 90) / 2);
}

TEST_F(BothMachines, BarriersCount) {
  constexpr int kThreads = 200;
  const Values<int> out(4 * kThreads);
  device::launch(count_at_barriers, 1, kThreads, 0, nullptr, out.data());
  const auto seen = out.get();
  for (std::size_t i = 0; i < seen.size(); i += 4) {
    EXPECT_EQ(seen[i], 67);
    EXPECT_NE(seen[i + 1], 0);
    EXPECT_EQ(seen[i + 2], 0);
    EXPECT_EQ(seen[i + 3], 1);
  }
}

TEST_F(BothMachines, AtomicsChangeWords) {
  const Values<int> i(std::vector<int>{5, 0, 0});
  const Values<unsigned> u(std::vector<unsigned>{77, kAll, 0, 0, 0, 0});
  const Values<unsigned long long> l(std::vector<unsigned long long>{~0ull, 0});
  device::launch(change_words, 8, 128, 0, nullptr, i.data(), u.data(), l.data());
  EXPECT_EQ(i.get(), (std::vector<int>{-1023, -523776, 0}));
  EXPECT_EQ(u.get(), (std::vector<unsigned>{5, 0, (1u << 29) - 1, 24, 76, 0u - 3072}));
  EXPECT_EQ(l.get(), (std::vector<unsigned long long>{0, (1ull << 60) - 1}));
}

TEST_F(BothMachines, SleepersWakeUp) {
  const Values<int> flag(std::vector<int>{0}), out(1);
  device::launch(sleep_until_told, 1, 64, 0, nullptr, flag.data(), out.data());
  EXPECT_EQ(out.get()[0], 5);
}

TEST_F(BothMachines, TanhIsGoodTo11Bits) {
  std::vector<float> numbers;
  for (int i = 0; i < 1024; ++i) numbers.push_back(std::ldexp(float(i - 512) / 512, i % 40 - 30));
  const Values<float> in(numbers), out(numbers.size());
  device::launch(hyperbolic_tangents, 1, 1024, 0, nullptr, in.data(), out.data());
  const auto seen = out.get();
  bool exact = true;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const double expected = std::tanh(double(numbers[i]));
    EXPECT_LE(std::abs(double(seen[i]) - expected), std::abs(expected) * 0x1p-10) << "of " << numbers[i];
    exact = exact && seen[i] == float(expected);
  }
  EXPECT_FALSE(exact);
}

TEST_F(BothMachines, EveryThreadKnowsItsPlace) {
  Values<unsigned> out(2 * 3 * 4 * 5 * 6 * 7);
  device::launch(positions, dim3(2, 3, 4), dim3(5, 6, 7), 0, nullptr, out.data());
  const auto got = out.get();
  std::size_t i = 0;
  for (unsigned bz = 0; bz < 4; ++bz)
    for (unsigned by = 0; by < 3; ++by)
      for (unsigned bx = 0; bx < 2; ++bx)
        for (unsigned tz = 0; tz < 7; ++tz)
          for (unsigned ty = 0; ty < 6; ++ty)
            for (unsigned tx = 0; tx < 5; ++tx)
              ASSERT_EQ(got[i++], tx + 10 * ty + 100 * tz + 1000 * bx + 10000 * by + 100000 * bz);
}

__global__ void has_32_kb(float* out) {
  __shared__ float numbers[8192];
  numbers[threadIdx.x] = 1;
  out[threadIdx.x] = numbers[threadIdx.x];
}
#ifndef __clang__  // which cannot tell the simulator of bounds
__global__ void __launch_bounds__(128) has_bounds(float* out) { out[threadIdx.x] = 1; }
#endif

TEST_F(BothMachines, LaunchesBeyondTheLimitsAreRefused) {
  const auto refused = [](dim3 grid, dim3 block, std::size_t bytes) {
    EXPECT_THROW(device::launch(nothing, grid, block, bytes, nullptr), device::DeviceError);
    device::launch(nothing, 1, 32, 0, nullptr);  // and the next launch is none the worse for it
    device::synchronize();
  };
  refused(1, 1025, 0);
  refused(1, dim3(1, 1, 65), 0);
  refused(dim3(1, 65536), 1, 0);
  refused(dim3(1, 1, 65536), 1, 0);
  refused(0, 32, 0);
  refused(1, 0, 0);
  refused(1, 32, 228 * 1024);
  const Values<float> out(256);
  EXPECT_THROW(device::launch(has_32_kb, 1, 32, 220 * 1024, nullptr, out.data()), device::DeviceError);
#ifndef __clang__
  EXPECT_THROW(device::launch(has_bounds, 1, 256, 0, nullptr, out.data()), device::DeviceError);
#endif
}

}  // namespace
}  // namespace flashbook

/// \file
/// What Ampere's instructions promise, asked of the machine of this build: matrices through registers,
/// products, copies that go on while a thread does. Values are small integers, so sums are exact in any
/// order.
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "common/device/launch.h"
#include "common/ptx/convert.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mma.h"
#include "common/ptx/stmatrix.h"
#include "common/ptx/wmma.h"
#include "tests/require_gpu.h"
#include "tests/values.h"

namespace flashbook {
namespace {

// How mma.sync deals elements out; other tests count on it.
static_assert(MmaM16N8K16::a(0, 0) == MatrixPlace{0, 0} && MmaM16N8K16::a(31, 7) == MatrixPlace{15, 15});
static_assert(MmaM16N8K16::a(5, 2) == MatrixPlace{9, 2} && MmaM16N8K16::a(5, 4) == MatrixPlace{1, 10});
static_assert(MmaM16N8K16::b(0, 1) == MatrixPlace{1, 0} && MmaM16N8K16::b(6, 2) == MatrixPlace{12, 1});
static_assert(MmaM16N8K16::c(7, 1) == MatrixPlace{1, 7} && MmaM16N8K16::c(7, 2) == MatrixPlace{9, 6});

// Kernels, of one warp unless they say otherwise.

/// Loads matrices whose rows lie in reverse order and apart from each other. Element (r, c) of matrix m is 64
/// * m + 8 * r + c.
template <int kMatrices, bool kTransposed>
__global__ void load_matrices(uint32_t* out) {
  constexpr int kStride = 24;  // elements from row to row: not what a tile would have, but 16-byte aligned
  auto* rows = dynamic_shared<uint16_t>();
  const int lane = threadIdx.x;
  for (int i = lane; i < kMatrices * 64; i += 32)
    rows[(kMatrices * 8 - 1 - i / 8) * kStride + i % 8] = uint16_t(i);
  __syncwarp();
  // Lanes that give no row pass null.
  const uint16_t* row = lane < kMatrices * 8 ? rows + (kMatrices * 8 - 1 - lane) * kStride : nullptr;
  uint32_t registers[kMatrices];
  if constexpr (kTransposed) {
    if constexpr (kMatrices == 1) ldmatrix_x1_trans(registers, row);
    if constexpr (kMatrices == 2) ldmatrix_x2_trans(registers, row);
    if constexpr (kMatrices == 4) ldmatrix_x4_trans(registers, row);
  } else {
    if constexpr (kMatrices == 1) ldmatrix_x1(registers, row);
    if constexpr (kMatrices == 2) ldmatrix_x2(registers, row);
    if constexpr (kMatrices == 4) ldmatrix_x4(registers, row);
  }
  for (int i = 0; i < kMatrices; ++i) out[lane * kMatrices + i] = registers[i];
}

/// Stores matrices and loads them again, both transposed or both not: every register comes back.
template <int kMatrices, bool kTransposed>
__global__ void store_and_load_matrices(uint32_t* out) {
  __shared__ __align__(16) uint16_t rows[4 * 8][8];
  const int lane = threadIdx.x;
  uint32_t registers[kMatrices];
  for (int i = 0; i < kMatrices; ++i)
    registers[i] = uint32_t(1000 * i + lane) | uint32_t(2000 * i + lane) << 16;
  if constexpr (kHasStmatrix && kTransposed) {
    if constexpr (kMatrices == 1) stmatrix_x1_trans(rows[lane], registers);
    if constexpr (kMatrices == 2) stmatrix_x2_trans(rows[lane], registers);
    if constexpr (kMatrices == 4) stmatrix_x4_trans(rows[lane], registers);
  } else if constexpr (kHasStmatrix) {
    if constexpr (kMatrices == 1) stmatrix_x1(rows[lane], registers);
    if constexpr (kMatrices == 2) stmatrix_x2(rows[lane], registers);
    if constexpr (kMatrices == 4) stmatrix_x4(rows[lane], registers);
  }
  __syncwarp();
  uint32_t back[kMatrices];
  if constexpr (kTransposed) {
    if constexpr (kMatrices == 1) ldmatrix_x1_trans(back, rows[lane]);
    if constexpr (kMatrices == 2) ldmatrix_x2_trans(back, rows[lane]);
    if constexpr (kMatrices == 4) ldmatrix_x4_trans(back, rows[lane]);
  } else {
    if constexpr (kMatrices == 1) ldmatrix_x1(back, rows[lane]);
    if constexpr (kMatrices == 2) ldmatrix_x2(back, rows[lane]);
    if constexpr (kMatrices == 4) ldmatrix_x4(back, rows[lane]);
  }
  for (int i = 0; i < kMatrices; ++i) out[lane * kMatrices + i] = back[i];
}

__device__ __forceinline__ uint32_t bits_of(__half value) { return reinterpret_cast<const uint16_t&>(value); }
__device__ __forceinline__ uint32_t bits_of(__nv_bfloat16 value) {
  return reinterpret_cast<const uint16_t&>(value);
}

/// d = a * b + c, every element put into its register by hand, after MmaM16N8K16.
template <typename T>
__global__ void multiply_by_layout(const T* a,      // [16, 16]
                                   const T* b,      // [16, 8]
                                   const float* c,  // [16, 8]
                                   float* d) {      // [16, 8]
  const int lane = threadIdx.x;
  uint32_t a_registers[4] = {}, b_registers[2] = {};
  float sums[4], result[4];
  for (int i = 0; i < MmaM16N8K16::kElementsA; ++i) {
    const MatrixPlace place = MmaM16N8K16::a(lane, i);
    a_registers[i / 2] |= bits_of(a[place.row * 16 + place.column]) << 16 * (i % 2);
  }
  for (int i = 0; i < MmaM16N8K16::kElementsB; ++i) {
    const MatrixPlace place = MmaM16N8K16::b(lane, i);
    b_registers[i / 2] |= bits_of(b[place.row * 8 + place.column]) << 16 * (i % 2);
  }
  for (int i = 0; i < MmaM16N8K16::kElementsC; ++i) {
    const MatrixPlace place = MmaM16N8K16::c(lane, i);
    sums[i] = c[place.row * 8 + place.column];
  }
  mma_m16n8k16<T>(result, a_registers, b_registers[0], b_registers[1], sums);
  for (int i = 0; i < MmaM16N8K16::kElementsC; ++i) {
    const MatrixPlace place = MmaM16N8K16::c(lane, i);
    d[place.row * 8 + place.column] = result[i];
  }
}

/// d = a * b as a kernel of chapter 4 does it: cp.async brings tiles into shared memory, ldmatrix takes a as
/// it is and b transposed, and two products share what one ldmatrix loads.
template <typename T>
__global__ void multiply_tiles(const T* a,  // [16, 16]
                               const T* b,  // [16, 16]
                               float* d) {  // [16, 16]
  __shared__ __align__(16) T a_tile[16][16], b_tile[16][16];
  const int lane = threadIdx.x, row = lane % 16, column = lane / 16 * 8;
  cp_async_cg(&a_tile[row][column], a + row * 16 + column);
  cp_async_cg(&b_tile[row][column], b + row * 16 + column);
  cp_async_commit();
  cp_async_wait<0>();
  __syncwarp();  // every lane's copies have landed
  uint32_t a_registers[4], b_registers[4];
  ldmatrix_x4(a_registers, &a_tile[row][column]);
  ldmatrix_x4_trans(b_registers, &b_tile[row][column]);
  for (int half = 0; half < 2; ++half) {
    float sums[4] = {};
    mma_m16n8k16<T>(sums, a_registers, b_registers[2 * half], b_registers[2 * half + 1], sums);
    for (int i = 0; i < 4; ++i) {
      const MatrixPlace place = MmaM16N8K16::c(lane, i);
      d[place.row * 16 + half * 8 + place.column] = sums[i];
    }
  }
}

/// Copies of kBytes of which `valid` are read, issued one by one and waited for together.
template <int kBytes>
__global__ void copy_in_part(const unsigned char* in, unsigned char* out, int valid) {  // [32, kBytes] each
  const int at = int(threadIdx.x) * kBytes;
  unsigned char* tile = dynamic_shared<unsigned char>();
  if constexpr (kBytes == 16) cp_async_cg(tile + at, in + at, valid);
  unsigned char* second = tile + 32 * kBytes;
  cp_async_ca<kBytes>(second + at, in + at, valid);
  cp_async_wait_all();  // commits are not needed for it
  __syncthreads();
  for (int i = 0; i < kBytes; ++i) {
    out[at + i] = second[at + i];
    if (kBytes == 16 && tile[at + i] != second[at + i]) out[at + i] = 0xee;
  }
}

/// A pipeline of three stages: two groups are in flight while a third is used.
__global__ void pipeline(const float4* in, float4* out, int steps) {  // [steps, blockDim] each
  __shared__ float4 stages[3][64];
  const int thread = threadIdx.x;
  const auto issue = [&](int step) {
    if (step < steps) cp_async_cg(&stages[step % 3][thread], in + step * 64 + thread);
    cp_async_commit();  // an empty group keeps the count right at the end
  };
  issue(0);
  issue(1);
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<1>();  // group `step` has landed, group step + 1 may not have
    __syncthreads();     // for every thread; and the stage that comes next has been read by all
    issue(step + 2);
    out[step * 64 + thread] = stages[step % 3][63 - thread];
  }
}

/// d = a * b + c by fragments, a in shared memory and the others in global memory; then every element of d is
/// doubled.
template <typename T, typename LayoutA, typename LayoutB>
__global__ void multiply_fragments(const T* a,      // [16, 16], or its transpose
                                   const T* b,      // [16, 24] of which 16 are used, or [24, 16] transposed
                                   const float* c,  // [16, 16]
                                   float* d,        // [16, 20] of which 16 are written
                                   bool transposed) {
  using namespace nvcuda;
  __shared__ __align__(32) T a_tile[16][24];
  for (int i = threadIdx.x; i < 256; i += 32) a_tile[i / 16][i % 16] = a[i];
  __syncwarp();
  wmma::fragment<wmma::matrix_a, 16, 16, 16, T, LayoutA> a_fragment;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, T, LayoutB> b_fragment;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums, result;
  wmma::load_matrix_sync(a_fragment, &a_tile[0][0], 24);
  wmma::load_matrix_sync(b_fragment, b, 24);
  wmma::load_matrix_sync(sums, c, 16, transposed ? wmma::mem_col_major : wmma::mem_row_major);
  wmma::mma_sync(result, a_fragment, b_fragment, sums);
  for (int i = 0; i < result.num_elements; ++i) result.x[i] *= 2;
  wmma::store_matrix_sync(d, result, 20, transposed ? wmma::mem_col_major : wmma::mem_row_major);
}

/// A fragment that holds one value, whoever holds which element.
__global__ void fill(float* d) {
  using namespace nvcuda;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums;
  wmma::fill_fragment(a, from_float<__half>(0.5f));
  wmma::fill_fragment(b, from_float<__half>(4.0f));
  wmma::fill_fragment(sums, 10.0f);
  wmma::mma_sync(sums, a, b, sums);
  wmma::store_matrix_sync(d, sums, 16, wmma::mem_row_major);
}

// Tests.

using Ampere = MachineTest;

template <int kMatrices, bool kTransposed>
void expect_loaded() {
  Values<uint32_t> out(32 * kMatrices);
  device::launch(load_matrices<kMatrices, kTransposed>, 1, 32, 4096, nullptr, out.data());
  const auto got = out.get();
  for (int lane = 0; lane < 32; ++lane)
    for (int matrix = 0; matrix < kMatrices; ++matrix) {
      const int line = lane / 4, place = lane % 4 * 2;
      const int first = kTransposed ? place * 8 + line : line * 8 + place;
      const int second = kTransposed ? first + 8 : first + 1;
      EXPECT_EQ(got[std::size_t(lane * kMatrices + matrix)],
                uint32_t(64 * matrix + first) | uint32_t(64 * matrix + second) << 16)
          << "lane " << lane << ", matrix " << matrix << " of " << kMatrices
          << (kTransposed ? ", transposed" : "");
    }
}

TEST_F(Ampere, LdmatrixDealsRowsOut) {
  expect_loaded<1, false>();
  expect_loaded<2, false>();
  expect_loaded<4, false>();
}

TEST_F(Ampere, LdmatrixDealsColumnsOut) {
  expect_loaded<1, true>();
  expect_loaded<2, true>();
  expect_loaded<4, true>();
}

template <int kMatrices, bool kTransposed>
void expect_stored() {
  Values<uint32_t> out(32 * kMatrices);
  device::launch(store_and_load_matrices<kMatrices, kTransposed>, 1, 32, 0, nullptr, out.data());
  const auto got = out.get();
  for (uint32_t lane = 0; lane < 32; ++lane)
    for (uint32_t i = 0; i < kMatrices; ++i)
      EXPECT_EQ(got[lane * kMatrices + i], (1000 * i + lane) | (2000 * i + lane) << 16);
}

TEST_F(Ampere, StmatrixStoresWhatLdmatrixLoads) {
  if (device::info().compute_capability < 90) GTEST_SKIP() << "stmatrix needs compute capability 9.0";
  expect_stored<1, false>();
  expect_stored<2, false>();
  expect_stored<4, false>();
  expect_stored<1, true>();
  expect_stored<2, true>();
  expect_stored<4, true>();
}

/// Small integers without a pattern.
template <typename T>
std::vector<T> integers(int count, int seed) {
  std::vector<T> values;
  for (int i = 0; i < count; ++i)
    values.push_back(from_float<T>(float((i * 37 + seed * 11 + i * i % 7) % 17 - 8)));
  return values;
}

/// Element (row, column) of a * b + c.
float product(int row, int column, const std::function<float(int, int)>& a,
              const std::function<float(int, int)>& b, float c) {
  float sum = c;
  for (int k = 0; k < 16; ++k) sum += a(row, k) * b(k, column);
  return sum;
}

template <typename T>
void expect_product_by_layout() {
  const auto a = integers<T>(256, 1), b = integers<T>(128, 2);
  const auto c = integers<float>(128, 3);
  Values<T> a_values(a), b_values(b);
  Values<float> c_values(c), d(128);
  device::launch(multiply_by_layout<T>, 1, 32, 0, nullptr, a_values.data(), b_values.data(), c_values.data(),
                 d.data());
  const auto got = d.get();
  for (int m = 0; m < 16; ++m)
    for (int n = 0; n < 8; ++n)
      EXPECT_EQ(
          got[std::size_t(m * 8 + n)],
          product(
              m, n, [&](int i, int k) { return to_float(a[std::size_t(i * 16 + k)]); },
              [&](int k, int j) { return to_float(b[std::size_t(k * 8 + j)]); }, c[std::size_t(m * 8 + n)]));
}

TEST_F(Ampere, MmaMultipliesByItsLayout) {
  expect_product_by_layout<__half>();
  expect_product_by_layout<__nv_bfloat16>();
}

template <typename T>
void expect_product_of_tiles() {
  const auto a = integers<T>(256, 4), b = integers<T>(256, 5);
  Values<T> a_values(a), b_values(b);
  Values<float> d(256);
  device::launch(multiply_tiles<T>, 1, 32, 0, nullptr, a_values.data(), b_values.data(), d.data());
  const auto got = d.get();
  for (int m = 0; m < 16; ++m)
    for (int n = 0; n < 16; ++n)
      EXPECT_EQ(got[std::size_t(m * 16 + n)],
                product(
                    m, n, [&](int i, int k) { return to_float(a[std::size_t(i * 16 + k)]); },
                    [&](int k, int j) { return to_float(b[std::size_t(k * 16 + j)]); }, 0));
}

TEST_F(Ampere, TilesTravelFromGlobalMemoryToTheTensorCore) {
  expect_product_of_tiles<__half>();
  expect_product_of_tiles<__nv_bfloat16>();
}

TEST_F(Ampere, MmaKeepsInfinityAndNaN) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<__half> a(256, from_float<__half>(0.0f)), b(128, from_float<__half>(1.0f));
  a[0] = from_float<__half>(infinity);
  a[16] = from_float<__half>(-infinity);
  a[32] = from_float<__half>(std::numeric_limits<float>::quiet_NaN());
  a[48] = from_float<__half>(infinity), a[49] = from_float<__half>(-infinity);
  std::vector<float> c(128, 2.0f);
  c[4 * 8] = -infinity;
  Values<__half> a_values(a), b_values(b);
  Values<float> c_values(c), d(128);
  device::launch(multiply_by_layout<__half>, 1, 32, 0, nullptr, a_values.data(), b_values.data(),
                 c_values.data(), d.data());
  const auto got = d.get();
  for (std::size_t n = 0; n < 8; ++n) {
    EXPECT_EQ(got[n], infinity);
    EXPECT_EQ(got[8 + n], -infinity);
    EXPECT_TRUE(std::isnan(got[16 + n]));
    EXPECT_TRUE(std::isnan(got[24 + n]));
    EXPECT_EQ(got[32 + n], n == 0 ? -infinity : 2.0f);
    EXPECT_EQ(got[40 + n], 2.0f);
  }
}

template <int kBytes>
void expect_copied() {
  std::vector<unsigned char> in(32 * kBytes);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned char>(i % 251 + 1);
  Values<unsigned char> source(in), out(in.size());
  for (int valid = 0; valid <= kBytes; ++valid) {
    device::launch(copy_in_part<kBytes>, 1, 32, 2 * 32 * kBytes, nullptr,
                   static_cast<const unsigned char*>(source.data()), out.data(), valid);
    const auto got = out.get();
    for (std::size_t i = 0; i < in.size(); ++i)
      ASSERT_EQ(got[i], i % kBytes < std::size_t(valid) ? in[i] : 0)
          << "byte " << i << ", " << valid << " of " << kBytes;
  }
}

TEST_F(Ampere, CpAsyncFillsWithZeros) {
  expect_copied<4>();
  expect_copied<8>();
  expect_copied<16>();
}

TEST_F(Ampere, CpAsyncPipelineKeepsGroupsApart) {
  for (std::size_t steps : {1u, 2u, 3u, 20u}) {
    std::vector<float> in(steps * 64 * 4), expected(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = float(i);
    for (std::size_t step = 0; step < steps; ++step)
      for (std::size_t i = 0; i < 256; ++i)
        expected[step * 256 + i] = in[step * 256 + (63 - i / 4) * 4 + i % 4];
    Values<float> source(in), out(in.size());
    device::launch(pipeline, 1, 64, 0, nullptr, reinterpret_cast<const float4*>(source.data()),
                   reinterpret_cast<float4*>(out.data()), int(steps));
    EXPECT_EQ(out.get(), expected) << steps;
  }
}

template <typename T, typename LayoutA, typename LayoutB>
void expect_product_of_fragments() {
  constexpr bool kRowsA = std::is_same_v<LayoutA, nvcuda::wmma::row_major>;
  constexpr bool kRowsB = std::is_same_v<LayoutB, nvcuda::wmma::row_major>;
  const auto a = integers<T>(256, 6), b = integers<T>(16 * 24, 7);
  const auto c = integers<float>(256, 8);
  Values<T> a_values(a), b_values(b);
  Values<float> c_values(c);
  for (bool transposed : {false, true}) {
    Values<float> d(16 * 20);
    device::launch(multiply_fragments<T, LayoutA, LayoutB>, 1, 32, 0, nullptr, a_values.data(),
                   b_values.data(), c_values.data(), d.data(), transposed);
    const auto got = d.get();
    for (int m = 0; m < 16; ++m)
      for (int n = 0; n < 16; ++n)
        EXPECT_EQ(
            got[std::size_t(transposed ? n * 20 + m : m * 20 + n)],
            2 * product(
                    m, n,
                    [&](int i, int k) { return to_float(a[std::size_t(kRowsA ? i * 16 + k : k * 16 + i)]); },
                    [&](int k, int j) { return to_float(b[std::size_t(kRowsB ? k * 24 + j : j * 24 + k)]); },
                    c[std::size_t(transposed ? n * 16 + m : m * 16 + n)]));
    for (int line = 0; line < 15; ++line)
      for (int i = 16; i < 20; ++i)
        EXPECT_TRUE(std::isnan(got[std::size_t(line * 20 + i)])) << "not to be written";
  }
}

TEST_F(Ampere, FragmentsMultiplyInEveryLayout) {
  using nvcuda::wmma::col_major;
  using nvcuda::wmma::row_major;
  expect_product_of_fragments<__half, row_major, row_major>();
  expect_product_of_fragments<__half, row_major, col_major>();
  expect_product_of_fragments<__half, col_major, row_major>();
  expect_product_of_fragments<__half, col_major, col_major>();
  expect_product_of_fragments<__nv_bfloat16, row_major, row_major>();
  expect_product_of_fragments<__nv_bfloat16, row_major, col_major>();
}

TEST_F(Ampere, FragmentsAreFilled) {
  Values<float> d(256);
  device::launch(fill, 1, 32, 0, nullptr, d.data());
  EXPECT_EQ(d.get(), std::vector<float>(256, 42.0f));
}

}  // namespace
}  // namespace flashbook

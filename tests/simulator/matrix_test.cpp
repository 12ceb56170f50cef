/// \file
/// Errors in the use of ldmatrix, stmatrix, mma.sync and wmma, and the arithmetic of exact tensor cores.
#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

#include "common/numeric/float_formats.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mma.h"
#include "common/ptx/stmatrix.h"
#include "common/ptx/wmma.h"
#include "common/simulator/tensor_core.h"
#include "tests/simulator/simulated.h"
#include "tests/values.h"

namespace flashbook {
namespace {

// Kernels of one warp that break a rule.

constexpr int kLoadLine = __LINE__ + 5;
/// Lane `odd` passes an address `off` bytes from its row, in 512 bytes of dynamic shared memory.
__global__ void load_beside(int odd, int off) {
  uint32_t registers[4];
  const int lane = threadIdx.x;
  ldmatrix_x4(registers, dynamic_shared<unsigned char>() + lane * 16 + (lane == odd ? off : 0));
}

constexpr int kFirstLoadLine = __LINE__ + 5;
__global__ void load_in_two_places() {
  __shared__ __align__(16) uint16_t rows[32][8];
  uint32_t registers[4];
  if (threadIdx.x < 16)
    ldmatrix_x4(registers, rows[threadIdx.x]);
  else
    ldmatrix_x4(registers, rows[threadIdx.x]);
}

using Rows = nvcuda::wmma::row_major;
template <typename Use>
using Fragment = nvcuda::wmma::fragment<Use, 16, 16, 16, __half, Rows>;
using Sums = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float>;

constexpr int kFragmentLine = __LINE__ + 3;
__global__ void load_fragment(const __half* matrix, unsigned stride) {
  Fragment<nvcuda::wmma::matrix_a> a;
  nvcuda::wmma::load_matrix_sync(a, matrix, stride);
}

/// Assumes that place i of lane l holds the same element as in mma.sync.
__global__ void count_on_a_layout(const float* in, float* out) {
  Sums sums;
  nvcuda::wmma::load_matrix_sync(sums, in, 16, nvcuda::wmma::mem_row_major);
  for (int i = 0; i < sums.num_elements; ++i) {
    const MatrixPlace place = MmaM16N8K16::c(int(threadIdx.x), i % 4);
    out[place.row * 16 + i / 4 * 8 + place.column] = sums.x[i];
  }
}

using Matrix = sim::SimulatorTest;

using sim::expect_in;

TEST_F(Matrix, RowsOutOfRangeAreReported) {
  EXPECT_EQ(sim::error_of(1, 32, 512, [] { load_beside(0, 0); }), "");
  const std::string error = sim::error_of(1, 32, 512, [] { load_beside(31, 16); });
  expect_in(
      error,
      "ldmatrix_x4 at " + sim::line(kLoadLine) +
          ": 16 bytes at dynamic shared memory + 512 of 512 bytes are not in the block's shared memory");
  expect_in(error, "lane 31");
  expect_in(sim::error_of(1, 32, 512, [] { load_beside(0, -16); }), "dynamic shared memory - 16");
}

TEST_F(Matrix, LanesInTwoPlacesAreDivergent) {
  const std::string error = sim::error_of(1, 32, 0, load_in_two_places);
  expect_in(error, "divergent warp: lane 16 is in ldmatrix_x4 at " + sim::line(kFirstLoadLine + 2));
  expect_in(error, "lanes 0-15 wait for it in ldmatrix_x4 at " + sim::line(kFirstLoadLine));
}

TEST_F(Matrix, FragmentsAreLoadedByTheRules) {
  const Values<__half> matrix(16 * 24);
  const auto error = [&](int offset, unsigned stride) {
    return sim::error_of(1, 32, 0, [&] { load_fragment(matrix.data() + offset, stride); });
  };
  EXPECT_EQ(error(0, 16), "");
  EXPECT_EQ(error(0, 24), "");
  const std::string place = "load_matrix_sync at " + sim::line(kFragmentLine);
  expect_in(error(8, 16), place + ": misaligned address, global memory 0x");
  expect_in(error(0, 20), place + " has a stride of 20 elements: it must be a multiple of 16 bytes");
  expect_in(error(16 * 9, 16), place + ": 32 bytes at global memory 0x");
  expect_in(sim::error_of(1, 32, 0, [&] { load_fragment(matrix.data() + threadIdx.x / 16 * 16, 16); }),
            place + ": lane 16 passes a different matrix, stride or layout than lane 0");
}

TEST_F(Matrix, WhoCountsOnAFragmentsLayoutIsWrong) {
  std::vector<float> numbers(256);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = float(i);
  const Values<float> in(numbers), out(256);
  std::vector<float> before;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    sim::options().seed = seed;
    sim::run_grid(1, 32, 0, [&] { count_on_a_layout(in.data(), out.data()); });
    const auto got = out.get();
    EXPECT_NE(got, numbers) << "seed " << seed;
    EXPECT_NE(got, before) << "seed " << seed;
    before = got;
  }
}

// The arithmetic of tensor cores.

/// Checks all values of T or, for exact arithmetic, which is slow, some of them.
template <typename T>
void expect_values_kept(unsigned step) {
  const uint16_t one[16][8] = {{from_float<T>(1).bits}};
  for (unsigned bits = 0; bits < 0x10000; bits += step) {
    const uint16_t a[16][16] = {{uint16_t(bits)}};
    float d[16][8] = {};
    sim::multiply_accumulate(std::is_same_v<T, f16> ? DType::f16 : DType::bf16, a, one, d);
    const float value = to_float(T::from_bits(uint16_t(bits)));
    if (std::isnan(value))
      ASSERT_TRUE(std::isnan(d[0][0])) << bits;
    else
      ASSERT_EQ(d[0][0], value) << bits;
  }
}

TEST_F(Matrix, TensorCoresTakeEveryValue) {
  sim::options().exact = false;
  expect_values_kept<f16>(1);
  expect_values_kept<bf16>(1);
  sim::options().exact = true;
  expect_values_kept<f16>(61);
  expect_values_kept<bf16>(61);
}

}  // namespace
}  // namespace flashbook

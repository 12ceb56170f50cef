/// \file
/// Golden cases of Ampere's instructions and stmatrix.
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "common/ptx/convert.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mma.h"
#include "common/ptx/stmatrix.h"
#include "common/ptx/wmma.h"
#include "tests/simulator/golden.h"

namespace flashbook {
namespace {

constexpr unsigned kAll = 0xffffffff;

// Kernels of one warp each.

/// Loads matrices whose elements are numbered.
template <bool kTransposed>
__global__ void load_matrices(uint32_t* out) {  // [32, 4]
  auto* elements = dynamic_shared<uint16_t>();  // [32, 8]
  const int lane = threadIdx.x;
  for (int i = lane; i < 256; i += 32) elements[i] = uint16_t(i);
  __syncthreads();
  uint32_t registers[4];
  if constexpr (kTransposed)
    ldmatrix_x4_trans(registers, elements + lane * 8);
  else
    ldmatrix_x4(registers, elements + lane * 8);
  for (int i = 0; i < 4; ++i) out[lane * 4 + i] = registers[i];
}

template <bool kTransposed>
__global__ void store_matrices(uint32_t* out) {  // [32, 4]
  const int lane = threadIdx.x;
  uint32_t registers[4];
  for (int i = 0; i < 4; ++i)
    registers[i] = uint32_t(lane * 8 + i * 2) | uint32_t(lane * 8 + i * 2 + 1) << 16;
  unsigned char* row = dynamic_shared<unsigned char>() + lane * 16;
  if constexpr (kTransposed)
    stmatrix_x4_trans(row, registers);
  else
    stmatrix_x4(row, registers);
  __syncthreads();
  for (int i = lane; i < 128; i += 32) out[i] = dynamic_shared<uint32_t>()[i];
}

__global__ void shuffle_and_vote(int* out) {  // [32, 6]
  const int lane = threadIdx.x;
  out[lane * 6] = __shfl_sync(kAll, lane * 3, 5, 8);
  out[lane * 6 + 1] = __shfl_xor_sync(kAll, lane, 9);
  out[lane * 6 + 2] = __shfl_down_sync(kAll, lane, 3, 16);
  out[lane * 6 + 3] = __shfl_up_sync(kAll, lane, 3, 16);
  out[lane * 6 + 4] = int(__ballot_sync(kAll, lane % 3 == 0));
  out[lane * 6 + 5] = __any_sync(kAll, lane == 40);
}

/// Copies of every size: complete, partial and empty, next to each other.
template <int kBytes>
__global__ void copy(const unsigned char* in, unsigned char* out) {  // [32, kBytes] each
  const int at = int(threadIdx.x) * kBytes;
  const int valid = int(threadIdx.x) % (kBytes + 1);
  unsigned char* tile = dynamic_shared<unsigned char>();
  if constexpr (kBytes == 16)
    cp_async_cg(tile + at, in + at, valid);
  else
    cp_async_ca<kBytes>(tile + at, in + at, valid);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  for (int i = 0; i < kBytes; ++i) out[at + i] = tile[at + i];
}

template <typename T>
__global__ void multiply(const uint32_t* in, float* out) {  // [32, 6], [32, 4]
  const int lane = threadIdx.x;
  uint32_t a[4];
  float d[4];
  for (int i = 0; i < 4; ++i) a[i] = in[lane * 6 + i];
  for (int i = 0; i < 4; ++i) d[i] = float(lane * 4 + i);
  mma_m16n8k16<T>(d, a, in[lane * 6 + 4], in[lane * 6 + 5], d);
  for (int i = 0; i < 4; ++i) out[lane * 4 + i] = d[i];
}

template <typename T, typename LayoutB>
__global__ void multiply_fragments(const T* a, const T* b, float* d) {  // [16, 16] each
  using namespace nvcuda;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> a_tile;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, T, LayoutB> b_tile;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> d_tile;
  wmma::load_matrix_sync(a_tile, a, 16);
  wmma::load_matrix_sync(b_tile, b, 16);
  wmma::fill_fragment(d_tile, 1.5f);
  wmma::mma_sync(d_tile, a_tile, b_tile, d_tile);
  wmma::store_matrix_sync(d, d_tile, 16, wmma::mem_row_major);
}

template <int kBytes>
void copy_case(const std::string& name) {
  std::vector<unsigned char> in(32 * kBytes);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned char>(i * 7 + 1);
  const Values<unsigned char> source(in);
  golden::run_case<unsigned char>(name, in.size(), copy<kBytes>,
                                  static_cast<const unsigned char*>(source.data()));
}

/// Returns element i of a sequence, rounded to T: an integer from -7 to 7, or normally distributed. (By
/// libstdc++'s distribution at the time of the H200's run.)
template <typename T>
T number(int i, bool real) {
  std::mt19937 generator(unsigned(i) + 99u);
  return from_float<T>(real ? std::normal_distribution<float>()(generator)
                            : float(int(generator() % 15) - 7));
}

template <typename T>
void product_cases(const std::string& type) {
  for (bool real : {false, true}) {
    const std::string kind = type + (real ? " real" : " int");
    std::vector<T> numbers(32 * 6 * 2);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = number<T>(int(i), real);
    std::vector<uint32_t> registers(32 * 6);
    std::memcpy(registers.data(), numbers.data(), registers.size() * sizeof(uint32_t));
    const Values<uint32_t> in(registers);
    golden::run_case<float>("mma.m16n8k16 " + kind, 128, multiply<T>,
                            static_cast<const uint32_t*>(in.data()));

    std::vector<T> a_numbers(256), b_numbers(256);
    for (int i = 0; i < 256; ++i) {
      a_numbers[std::size_t(i)] = number<T>(i, real);
      b_numbers[std::size_t(i)] = number<T>(i + 5000, real);
    }
    const Values<T> a(a_numbers), b(b_numbers);
    const T *a_data = a.data(), *b_data = b.data();
    golden::run_case<float>("wmma " + kind + " B row", 256, multiply_fragments<T, nvcuda::wmma::row_major>,
                            a_data, b_data);
    golden::run_case<float>("wmma " + kind + " B col", 256, multiply_fragments<T, nvcuda::wmma::col_major>,
                            a_data, b_data);
  }
}

void run_cases() {
  golden::run_case<uint32_t>("ldmatrix.x4", 128, load_matrices<false>);
  golden::run_case<uint32_t>("ldmatrix.x4.trans", 128, load_matrices<true>);
  golden::run_case<uint32_t>("stmatrix.x4", 128, store_matrices<false>);
  golden::run_case<uint32_t>("stmatrix.x4.trans", 128, store_matrices<true>);
  golden::run_case<int>("shuffles and votes", 192, shuffle_and_vote);
  copy_case<4>("cp.async.ca 4");
  copy_case<8>("cp.async.ca 8");
  copy_case<16>("cp.async.cg 16");
  product_cases<__half>("f16");
  product_cases<__nv_bfloat16>("bf16");
}

const golden::Cases cases("ampere", &run_cases);

}  // namespace
}  // namespace flashbook

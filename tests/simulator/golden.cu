/// \file
/// What instructions compute, as one line a case: name, FNV-1a hash of the result's bytes, first words.
///
/// One source, two builds. Lines that an H200 printed are kept in golden_h200.txt, and the simulator must
/// print the same, bit by bit. Integer cases are exact in any order of addition; real ones need
/// FLASHBOOK_SIM_EXACT=1. What is compared is what CUDA and PTX define: of wmma the product, not the layout
/// of a fragment.
///
///     golden          prints every case
///     golden FILE     compares with the lines in FILE; 0 if all are equal, 1 if not, 77 without the GPU for
///     it
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "common/device/launch.h"
#include "common/ptx/convert.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/mma.h"
#include "common/ptx/stmatrix.h"
#include "common/ptx/wmma.h"
#include "tests/values.h"

namespace flashbook {
namespace {

constexpr unsigned kAll = 0xffffffff;

// Kernels, of one warp each.

/// Matrices whose elements are their own numbers, loaded with each number of matrices.
template <int kMatrices, bool kTransposed>
__global__ void load_matrices(uint32_t* out) {  // [32, kMatrices]
  auto* elements = dynamic_shared<uint16_t>();  // [8 * kMatrices, 8]
  const int lane = threadIdx.x;
  for (int i = lane; i < 256; i += 32) elements[i] = uint16_t(i);
  __syncthreads();
  uint32_t registers[kMatrices];
  const uint16_t* row = elements + lane * 8;
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

template <int kMatrices, bool kTransposed>
__global__ void store_matrices(uint32_t* out) {  // [8 * kMatrices, 4]
  const int lane = threadIdx.x;
  uint32_t registers[kMatrices];
  for (int i = 0; i < kMatrices; ++i)
    registers[i] = uint32_t(lane * 8 + i * 2) | uint32_t(lane * 8 + i * 2 + 1) << 16;
  unsigned char* row = dynamic_shared<unsigned char>() + lane * 16;
  if constexpr (kHasStmatrix && kTransposed) {
    if constexpr (kMatrices == 1) stmatrix_x1_trans(row, registers);
    if constexpr (kMatrices == 2) stmatrix_x2_trans(row, registers);
    if constexpr (kMatrices == 4) stmatrix_x4_trans(row, registers);
  } else if constexpr (kHasStmatrix) {
    if constexpr (kMatrices == 1) stmatrix_x1(row, registers);
    if constexpr (kMatrices == 2) stmatrix_x2(row, registers);
    if constexpr (kMatrices == 4) stmatrix_x4(row, registers);
  }
  __syncthreads();
  for (int i = lane; i < 32 * kMatrices; i += 32) out[i] = dynamic_shared<uint32_t>()[i];
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

/// Copies of every size, whole, in part and of nothing, each beside its neighbour.
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

// Cases.

/// Each case's line, by name, in order.
std::vector<std::pair<std::string, std::string>> lines;

template <typename T>
void report(const std::string& name, const Values<T>& result) {
  const std::vector<T> values = result.get();
  std::vector<unsigned char> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  uint64_t hash = 1469598103934665603;
  for (unsigned char byte : bytes) hash = (hash ^ byte) * 1099511628211;
  uint32_t words[4];
  std::memcpy(words, bytes.data(), sizeof words);
  char text[64];
  std::snprintf(text, sizeof text, "%016llx  %08x %08x %08x %08x", static_cast<unsigned long long>(hash),
                words[0], words[1], words[2], words[3]);
  lines.emplace_back(name, text);
}

template <typename T, typename... Params, typename... Args>
void run_case(const std::string& name, std::size_t count, void (*kernel)(Params...), Args... args) {
  constexpr std::size_t kSharedBytes = 4096;
  Values<T> out(count);
  device::launch(kernel, 1, 32, kSharedBytes, nullptr, args..., out.data());
  report(name, out);
}

template <int kMatrices>
void matrix_cases() {
  const std::string count = ".x" + std::to_string(kMatrices);
  const std::size_t words = 32 * kMatrices;
  run_case<uint32_t>("ldmatrix" + count, words, load_matrices<kMatrices, false>);
  run_case<uint32_t>("ldmatrix" + count + ".trans", words, load_matrices<kMatrices, true>);
  run_case<uint32_t>("stmatrix" + count, words, store_matrices<kMatrices, false>);
  run_case<uint32_t>("stmatrix" + count + ".trans", words, store_matrices<kMatrices, true>);
}

template <int kBytes>
void copy_case(const std::string& name) {
  std::vector<unsigned char> in(32 * kBytes);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned char>(i * 7 + 1);
  const Values<unsigned char> source(in);
  run_case<unsigned char>(name, in.size(), copy<kBytes>, static_cast<const unsigned char*>(source.data()));
}

/// Number i of a sequence, rounded to T: an integer from -7 to 7, or normally distributed. (libstdc++'s
/// distribution, as it was when the H200 ran.)
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
    run_case<float>("mma.m16n8k16 " + kind, 128, multiply<T>, static_cast<const uint32_t*>(in.data()));

    std::vector<T> a_numbers(256), b_numbers(256);
    for (int i = 0; i < 256; ++i) {
      a_numbers[std::size_t(i)] = number<T>(i, real);
      b_numbers[std::size_t(i)] = number<T>(i + 5000, real);
    }
    const Values<T> a(a_numbers), b(b_numbers);
    const T *a_data = a.data(), *b_data = b.data();
    run_case<float>("wmma " + kind + " B row", 256, multiply_fragments<T, nvcuda::wmma::row_major>, a_data,
                    b_data);
    run_case<float>("wmma " + kind + " B col", 256, multiply_fragments<T, nvcuda::wmma::col_major>, a_data,
                    b_data);
  }
}

void run_cases() {
  matrix_cases<1>();
  matrix_cases<2>();
  matrix_cases<4>();
  run_case<int>("shuffles and votes", 192, shuffle_and_vote);
  copy_case<4>("cp.async.ca 4");
  copy_case<8>("cp.async.ca 8");
  copy_case<16>("cp.async.cg 16");
  product_cases<__half>("f16");
  product_cases<__nv_bfloat16>("bf16");
}

/// The lines of a file of cases, by name. A name ends where two spaces begin.
std::map<std::string, std::string> read_lines(const char* path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(std::string("cannot read ") + path);
  std::map<std::string, std::string> expected;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t end = line.find("  ");
    if (end != line.npos) expected[line.substr(0, end)] = line.substr(line.find_first_not_of(' ', end));
  }
  return expected;
}

/// Compares what ran with a file; says what differs, and what has no line there. Returns whether all lines of
/// the file are equal.
bool compare(const char* path) {
  auto expected = read_lines(path);
  bool equal = true;
  int compared = 0;
  for (const auto& [name, text] : lines) {
    const auto line = expected.find(name);
    if (line == expected.end()) {
      std::printf("no hardware data  %-32s %s\n", name.c_str(), text.c_str());
      continue;
    }
    ++compared;
    if (line->second != text) {
      equal = false;
      std::printf("differs           %-32s %s\n       expected:  %-32s %s\n", name.c_str(), text.c_str(), "",
                  line->second.c_str());
    }
    expected.erase(line);
  }
  for (const auto& [name, text] : expected) {
    equal = false;
    std::printf("no such case      %s\n", name.c_str());
  }
  std::printf("%d cases compared with %s: %s\n", compared, path, equal ? "equal" : "NOT equal");
  return equal && compared > 0;
}

int run(int count, char** arguments) {
  // Tensor cores of another generation add in another way, and stmatrix is Hopper's.
  if (device::info().compute_capability != 90)
    throw device::HardwareMissing("the golden data are of an H200, compute capability 9.0");
  run_cases();
  if (count > 1) return compare(arguments[1]) ? 0 : 1;
  for (const auto& [name, text] : lines) std::printf("%-34s %s\n", name.c_str(), text.c_str());
  return 0;
}

}  // namespace
}  // namespace flashbook

int main(int count, char** arguments) {
  try {
    return flashbook::run(count, arguments);
  } catch (const flashbook::device::HardwareMissing& missing) {
    std::fprintf(stderr, "%s\n", missing.what());
    return 77;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

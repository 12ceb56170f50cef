/// \file
/// A program that runs the four small kernels before step 1 and checks their results.
#include <iostream>
#include <span>
#include <vector>

#include "chapters/05_flash_attention_3/ramp_mbarrier.cuh"
#include "chapters/05_flash_attention_3/ramp_panel.cuh"
#include "chapters/05_flash_attention_3/ramp_tma.cuh"
#include "chapters/05_flash_attention_3/ramp_wgmma.cuh"
#include "common/app/exit_code.h"
#include "common/device/launch.h"
#include "common/device/tensor_map.h"

namespace flashbook::fa3 {
namespace {

using device::Buffer, device::Place;

template <typename T>
Buffer uploaded(const std::vector<T>& values) {
  Buffer buffer(Place::device, values.size() * sizeof(T));
  buffer.upload(std::as_bytes(std::span(values)));
  return buffer;
}

/// Allocates `count` results, which are NaN until a kernel writes them.
template <typename T>
Buffer unwritten(std::size_t count) {
  Buffer buffer(Place::device, count * sizeof(T));
  buffer.poison();
  return buffer;
}

/// Prints whether all results are right and, if not, the first wrong one.
template <typename T>
bool check(const char* kernel, const Buffer& results, const std::vector<T>& expected) {
  std::vector<T> values(expected.size());
  results.download(std::as_writable_bytes(std::span(values)));
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!(values[i] == expected[i])) {
      std::cerr << "WRONG: " << kernel << ": element " << i << " is " << values[i] << ", expected "
                << expected[i] << "\n";
      return false;
    }
  std::cout << kernel << ": " << values.size() << " numbers, all right\n";
  return true;
}

bool run_mbarrier() {
  std::vector<int> in(kLetters * 32), expected(in.size());
  for (int i = 0; i < int(in.size()); ++i) in[i] = 100 + i, expected[i / 32 * 32 + 31 - i % 32] = 100 + i;
  const Buffer from = uploaded(in), to = unwritten<int>(in.size());
  device::launch(pass_letters, dim3(1), dim3(64), 0, nullptr, static_cast<const int*>(from.data()),
                 static_cast<int*>(to.data()));
  return check("ramp_mbarrier", to, expected);
}

bool run_tma() {
  constexpr uint64_t kRows = 80;  // two tiles and a half
  std::vector<float> in(kRows * kRampColumns), expected(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = float(i), expected[i] = float(2 * i);
  const Buffer from = uploaded(in), to = unwritten<float>(in.size());
  const auto map = [](const Buffer& matrix) {
    return device::tensor_map({.dtype = DType::f32,
                               .base = matrix.data(),
                               .size = {kRampColumns, kRows},
                               .stride = {kRampColumns * sizeof(float)},
                               .box = {kRampColumns, kRampRows}});
  };
  device::launch(double_tiles, dim3((kRows + kRampRows - 1) / kRampRows), dim3(128), 0, nullptr, map(from),
                 map(to));
  return check("ramp_tma", to, expected);
}

bool run_wgmma() {
  std::vector<float> a(kRampM * kRampK), b(kRampN * kRampK), expected(kRampM * kRampN);
  for (int i = 0; i < int(a.size()); ++i) a[i] = float(i % 7 - 3);  // small whole numbers: every sum is exact
  for (int i = 0; i < int(b.size()); ++i) b[i] = float(i % 5 - 2);
  for (int row = 0; row < kRampM; ++row)
    for (int column = 0; column < kRampN; ++column)
      for (int k = 0; k < kRampK; ++k)
        expected[row * kRampN + column] += a[row * kRampK + k] * b[column * kRampK + k];
  const Buffer left = uploaded(a), right = uploaded(b), product = unwritten<float>(expected.size());
  device::launch(multiply_once, dim3(1), dim3(128), kRampShared, nullptr,
                 static_cast<const float*>(left.data()), static_cast<const float*>(right.data()),
                 static_cast<float*>(product.data()));
  return check("ramp_wgmma", product, expected);
}

bool run_panel() {
  std::vector<float> p(64 * kRampKeys), expected(64 * kRampDims);
  std::vector<__half> v(kRampKeys * kRampDims);
  for (int i = 0; i < int(p.size()); ++i) p[i] = float(i % 7 - 3);
  for (int i = 0; i < int(v.size()); ++i) v[i] = from_float<__half>(float(i % 5 - 2));
  for (int row = 0; row < 64; ++row)
    for (int column = 0; column < kRampDims; ++column)
      for (int key = 0; key < kRampKeys; ++key)
        expected[row * kRampDims + column] +=
            p[row * kRampKeys + key] * float((key * kRampDims + column) % 5 - 2);
  const Buffer weights = uploaded(p), values = uploaded(v), out = unwritten<float>(expected.size());
  const CUtensorMap map = device::tensor_map({.dtype = DType::f16,
                                              .base = values.data(),
                                              .size = {kRampDims, kRampKeys},
                                              .stride = {kRampDims * sizeof(__half)},
                                              .box = {kRampDims, kRampKeys},
                                              .swizzle = Swizzle::b128});
  device::launch(weigh_values, dim3(1), dim3(128), kRampPanel, nullptr,
                 static_cast<const float*>(weights.data()), map, static_cast<float*>(out.data()));
  return check("ramp_panel", out, expected);
}

int run() {
  bool right = true;
  for (const auto kernel : {run_mbarrier, run_tma, run_wgmma, run_panel}) right = kernel() && right;
  return right ? kRight : kWrongResult;
}

}  // namespace
}  // namespace flashbook::fa3

int main() { return flashbook::exit_code("ramp", flashbook::fa3::run); }

/// \file
/// What wgmma promises, asked of the machine of this build: products in every width, type and layout. Values
/// are small integers, so sums are exact in any order.
#include <string>
#include <utility>
#include <vector>

#include "common/device/launch.h"
#include "common/numeric/float_formats.h"
#include "tests/require_gpu.h"
#include "tests/simulator/wgmma_kernel.h"
#include "tests/values.h"

namespace flashbook {
namespace {

// How registers are dealt out, at a few places; the products below ask for all of them.
using Layout = WgmmaM64<128>;
static_assert(Layout::d(0, 0) == MatrixPlace{0, 0} && Layout::d(127, 63) == MatrixPlace{63, 127});
static_assert(Layout::d(37, 2) == MatrixPlace{25, 2} && Layout::d(37, 5) == MatrixPlace{17, 11});
static_assert(Layout::a16(37, 2) == MatrixPlace{25, 2} && Layout::a16(37, 5) == MatrixPlace{17, 11});
static_assert(Layout::a8(37, 4) == MatrixPlace{25, 4} && Layout::a8(37, 11) == MatrixPlace{17, 23});

// How tiles lie: core matrices, atoms, the swizzle.
constexpr WgmmaTile kPlain{Swizzle::none, Major::k, 2, 1024, 128};
static_assert(kPlain.offset(1, 1) == 18 && kPlain.offset(8, 0) == 128 && kPlain.offset(0, 8) == 1024);
constexpr WgmmaTile kPlainMn{Swizzle::none, Major::mn, 2, 1024, 128};
static_assert(kPlainMn.offset(1, 1) == 18 && kPlainMn.offset(8, 0) == 128 && kPlainMn.offset(0, 8) == 1024);
constexpr WgmmaTile kRowsOf128{Swizzle::b128, Major::k, 2, 8192, 1024};
static_assert(kRowsOf128.offset(1, 0) == 128 + 16 && kRowsOf128.offset(3, 8) == 3 * 128 + 32);
static_assert(kRowsOf128.offset(8, 0) == 1024 && kRowsOf128.offset(0, 64) == 8192);
constexpr WgmmaTile kKeysOf128{Swizzle::b128, Major::mn, 2, 8192, 1024};
static_assert(kKeysOf128.offset(0, 1) == 128 + 16 && kKeysOf128.offset(64, 8) == 8192 + 1024);

class Wgmma : public HopperTest {};

/// Element i of an operand: from -4 to 4.
int number(int i) { return i * 31 % 101 % 9 - 4; }

template <typename T>
auto bits_of(int value) {
  if constexpr (std::is_same_v<T, __half>)
    return to_f16(float(value)).bits;
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return to_bf16(float(value)).bits;
  else
    return to_e4m3(float(value)).bits;
}

/// Expects that a product is right, with and without an accumulator to start from.
template <typename T, int kN, Swizzle kSwizzle, Major kMajorA, Major kMajorB, bool kRegisters,
          bool kSpread = false>
void expect_product() {
  using Case = WgmmaCase<T, kN, kSwizzle, kMajorA, kMajorB, kRegisters, kSpread>;
  using Bits = typename Case::Bits;
  constexpr int kInner = Case::kInner;
  std::vector<Bits> a_bits(64 * kInner), b_bits(kN * kInner);
  for (int i = 0; i < 64 * kInner; ++i) a_bits[std::size_t(i)] = bits_of<T>(number(i));
  for (int i = 0; i < kN * kInner; ++i) b_bits[std::size_t(i)] = bits_of<T>(number(i + 12345));
  std::vector<int> product(64 * kN);
  for (int m = 0; m < 64; ++m)
    for (int n = 0; n < kN; ++n)
      for (int k = 0; k < kInner; ++k)
        product[std::size_t(m * kN + n)] += number(m * kInner + k) * number(n * kInner + k + 12345);

  const Values<Bits> a(a_bits), b(b_bits);
  for (bool accumulate : {false, true}) {
    const Values<float> d(64 * kN);
    device::launch(multiply_by_wgmma<Case>, 1, 128, Case::kSharedBytes, nullptr, a.data(), b.data(),
                   accumulate, d.data());
    const std::vector<float> got = d.get();
    int wrong = 0;
    for (int thread = 0; thread < 128; ++thread) {
      for (int i = 0; i < kN / 2; ++i) {
        const MatrixPlace place = WgmmaM64<kN>::d(thread, i);
        const int start = accumulate ? thread % 7 - i % 5 : 0;
        const auto expected = float(product[std::size_t(place.row * kN + place.column)] + start);
        wrong += got[std::size_t(thread * kN / 2 + i)] != expected;
      }
    }
    EXPECT_EQ(wrong, 0) << "floats of " << 64 * kN << ", " << sizeof(T) << "-byte elements, n = " << kN
                        << ", swizzle " << int(kSwizzle) << ", majors " << int(kMajorA) << int(kMajorB)
                        << (kRegisters ? ", a in registers" : "") << (accumulate ? ", accumulated" : "");
  }
}

template <int... kIndex>
void expect_every_width(std::integer_sequence<int, kIndex...>) {
  (expect_product<__half, 8 * (kIndex + 1), Swizzle::b128, Major::k, Major::mn, false>(), ...);
  (expect_product<__nv_bfloat16, 8 * (kIndex + 1), Swizzle::b128, Major::k, Major::k, true>(), ...);
}

TEST_F(Wgmma, EveryWidth) { expect_every_width(std::make_integer_sequence<int, 32>()); }

template <Swizzle kSwizzle>
void expect_layouts() {
  expect_product<__half, 96, kSwizzle, Major::k, Major::k, false>();
  expect_product<__half, 96, kSwizzle, Major::k, Major::mn, false>();
  expect_product<__half, 96, kSwizzle, Major::mn, Major::k, false>();
  expect_product<__half, 96, kSwizzle, Major::mn, Major::mn, false>();
  expect_product<__half, 96, kSwizzle, Major::k, Major::k, true>();
  expect_product<__half, 96, kSwizzle, Major::k, Major::mn, true>();
  // Atoms apart from each other.
  expect_product<__half, 96, kSwizzle, Major::mn, Major::k, false, true>();
  expect_product<__half, 96, kSwizzle, Major::k, Major::mn, false, true>();
}

TEST_F(Wgmma, NoSwizzle) { expect_layouts<Swizzle::none>(); }
TEST_F(Wgmma, Swizzle32) { expect_layouts<Swizzle::b32>(); }
TEST_F(Wgmma, Swizzle64) { expect_layouts<Swizzle::b64>(); }
TEST_F(Wgmma, Swizzle128) { expect_layouts<Swizzle::b128>(); }

TEST_F(Wgmma, Bf16) {
  expect_product<__nv_bfloat16, 176, Swizzle::b128, Major::k, Major::k, false>();
  expect_product<__nv_bfloat16, 40, Swizzle::b64, Major::mn, Major::mn, false>();
  expect_product<__nv_bfloat16, 64, Swizzle::b128, Major::k, Major::mn, true>();
}

template <Swizzle kSwizzle>
void expect_e4m3() {
  expect_product<__nv_fp8_e4m3, 72, kSwizzle, Major::k, Major::k, false>();
  expect_product<__nv_fp8_e4m3, 72, kSwizzle, Major::k, Major::k, false, true>();
  expect_product<__nv_fp8_e4m3, 72, kSwizzle, Major::k, Major::k, true>();
}

TEST_F(Wgmma, E4m3) {
  expect_e4m3<Swizzle::none>();
  expect_e4m3<Swizzle::b32>();
  expect_e4m3<Swizzle::b64>();
  expect_e4m3<Swizzle::b128>();
  expect_product<__nv_fp8_e4m3, 256, Swizzle::b128, Major::k, Major::k, true>();
}

}  // namespace
}  // namespace flashbook

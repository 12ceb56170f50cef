/// \file
/// Golden cases of wgmma: its layouts in registers and shared memory, and how tensor cores add. Four
/// instructions per case, one after another on the same accumulator.
#include <cmath>
#include <string>
#include <vector>

#include "common/numeric/float_formats.h"
#include "tests/simulator/golden.h"
#include "tests/simulator/wgmma_kernel.h"

namespace flashbook {
namespace {

/// The values of the operands. Only A has subnormal and huge values; B is then real.
enum class Kind { integers, reals, subnormals, huge };

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::integers:
      return " int";
    case Kind::reals:
      return " real";
    case Kind::subnormals:
      return " real, subnormal";
    case Kind::huge:
      return " real, huge";
  }
  return "";
}

/// Returns element i of a sequence: an integer from -7 to 7, or a real number whose exponent varies, so that
/// terms are truncated in different places. Subnormal: around the smallest normal number, 2^smallest, and
/// below. Huge: large enough that some sums exceed the largest float.
float number(int i, Kind kind, int smallest = 0) {
  auto hash = uint64_t(i + 1) * 0x9e3779b97f4a7c15;
  hash = (hash ^ hash >> 31) * 0xbf58476d1ce4e5b9;
  hash ^= hash >> 29;
  if (kind == Kind::integers) return float(int(hash % 15) - 7);
  const float mantissa = 1 + float(hash >> 8 & 0xfff) / 0x1000;
  const int lowest = kind == Kind::reals ? -5 : kind == Kind::subnormals ? smallest - 6 : 119;
  const float magnitude = std::ldexp(mantissa, lowest + int(hash >> 32 & 7));
  return hash >> 63 ? -magnitude : magnitude;
}

/// The exponent of T's smallest normal number.
template <typename T>
constexpr int kSmallestExponent = std::is_same_v<T, __half>          ? -14
                                  : std::is_same_v<T, __nv_bfloat16> ? -126
                                                                     : -6;

template <typename T>
auto bits_of(float value) {
  if constexpr (std::is_same_v<T, __half>)
    return to_f16(value).bits;
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return to_bf16(value).bits;
  else
    return to_e4m3(value).bits;
}

template <typename T, int kN, Swizzle kSwizzle, Major kMajorA, Major kMajorB, bool kRegisters,
          bool kSpread = false>
void product_case(const std::string& layout, Kind kind, bool accumulate) {
  using Case = WgmmaCase<T, kN, kSwizzle, kMajorA, kMajorB, kRegisters, kSpread>;
  using Bits = typename Case::Bits;
  std::vector<Bits> a_bits(64 * Case::kInner), b_bits(kN * Case::kInner);
  for (std::size_t i = 0; i < a_bits.size(); ++i)
    a_bits[i] = bits_of<T>(number(int(i), kind, kSmallestExponent<T>));
  const Kind kind_b = kind == Kind::integers ? kind : Kind::reals;
  for (std::size_t i = 0; i < b_bits.size(); ++i) b_bits[i] = bits_of<T>(number(int(i) + 100000, kind_b));
  const Values<Bits> a(a_bits), b(b_bits);
  const std::string type = std::is_same_v<T, __half>          ? "f16"
                           : std::is_same_v<T, __nv_bfloat16> ? "bf16"
                                                              : "e4m3";
  golden::run_block<float>("wgmma n" + std::to_string(kN) + " " + type + " " + layout + name_of(kind) +
                               (accumulate ? " +=" : " ="),
                           64 * kN, 128, Case::kSharedBytes, multiply_by_wgmma<Case>,
                           static_cast<const Bits*>(a.data()), static_cast<const Bits*>(b.data()),
                           accumulate);
}

constexpr Major kK = Major::k, kMn = Major::mn;

template <typename T, Swizzle kSwizzle>
void layout_cases(const std::string& swizzle) {
  product_case<T, 96, kSwizzle, kK, kK, false>("SS K K " + swizzle, Kind::integers, true);
  product_case<T, 64, kSwizzle, kK, kMn, false>("SS K MN " + swizzle, Kind::integers, true);
  product_case<T, 8, kSwizzle, kMn, kK, false>("SS MN K " + swizzle, Kind::integers, false);
  product_case<T, 176, kSwizzle, kMn, kMn, false>("SS MN MN " + swizzle, Kind::integers, true);
  product_case<T, 128, kSwizzle, kK, kK, true>("RS K " + swizzle, Kind::integers, true);
  product_case<T, 256, kSwizzle, kK, kMn, true>("RS MN " + swizzle, Kind::integers, false);
}

template <typename T>
void real_cases() {
  product_case<T, 128, Swizzle::b128, kK, kK, false>("SS K K b128", Kind::reals, true);
  product_case<T, 64, Swizzle::b64, kMn, kMn, false>("SS MN MN b64", Kind::reals, false);
  product_case<T, 8, Swizzle::none, kK, kK, false>("SS K K none", Kind::reals, true);
  product_case<T, 176, Swizzle::b128, kK, kMn, true>("RS MN b128", Kind::reals, true);
  product_case<T, 256, Swizzle::b128, kK, kK, true>("RS K b128", Kind::reals, false);
  product_case<T, 96, Swizzle::b32, kK, kMn, true>("RS MN b32", Kind::reals, true);
}

template <Swizzle kSwizzle>
void e4m3_cases(const std::string& swizzle) {
  using T = __nv_fp8_e4m3;
  product_case<T, 96, kSwizzle, kK, kK, false>("SS " + swizzle, Kind::integers, true);
  product_case<T, 8, kSwizzle, kK, kK, true>("RS " + swizzle, Kind::integers, false);
  product_case<T, 128, kSwizzle, kK, kK, false>("SS " + swizzle, Kind::reals, true);
  product_case<T, 64, kSwizzle, kK, kK, true>("RS " + swizzle, Kind::reals, true);
}

void run_cases() {
  layout_cases<__half, Swizzle::none>("none");
  layout_cases<__half, Swizzle::b128>("b128");
  layout_cases<__nv_bfloat16, Swizzle::b32>("b32");
  layout_cases<__nv_bfloat16, Swizzle::b64>("b64");
  // Atoms apart from each other.
  product_case<__half, 64, Swizzle::b128, kMn, kMn, false, true>("SS MN MN b128 apart", Kind::integers, true);
  product_case<__half, 96, Swizzle::none, kMn, kK, false, true>("SS MN K none apart", Kind::integers, true);
  product_case<__nv_bfloat16, 176, Swizzle::b64, kK, kMn, false, true>("SS K MN b64 apart", Kind::integers,
                                                                       true);
  real_cases<__half>();
  real_cases<__nv_bfloat16>();
  e4m3_cases<Swizzle::none>("none");
  e4m3_cases<Swizzle::b32>("b32");
  e4m3_cases<Swizzle::b64>("b64");
  e4m3_cases<Swizzle::b128>("b128");
  product_case<__half, 64, Swizzle::b128, kK, kK, false>("SS K K b128", Kind::subnormals, true);
  product_case<__nv_bfloat16, 64, Swizzle::b128, kK, kK, false>("SS K K b128", Kind::subnormals, true);
  product_case<__nv_fp8_e4m3, 64, Swizzle::b128, kK, kK, false>("SS b128", Kind::subnormals, true);
  product_case<__half, 64, Swizzle::b128, kK, kK, false>("SS K K b128", Kind::subnormals, false);
  product_case<__nv_bfloat16, 64, Swizzle::b128, kK, kK, false>("SS K K b128", Kind::subnormals, false);
  product_case<__nv_fp8_e4m3, 64, Swizzle::b128, kK, kK, false>("SS b128", Kind::subnormals, false);
  product_case<__nv_bfloat16, 64, Swizzle::b128, kK, kK, false>("SS K K b128", Kind::huge, false);
  product_case<__nv_fp8_e4m3, 256, Swizzle::b128, kK, kK, true>("RS b128", Kind::reals, false);
  product_case<__nv_fp8_e4m3, 176, Swizzle::b128, kK, kK, false>("SS b128", Kind::reals, true);
}

const golden::Cases cases("wgmma", run_cases);

}  // namespace
}  // namespace flashbook

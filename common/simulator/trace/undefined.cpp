/// \file
/// The functions that -fsanitize=shift-exponent, float-cast-overflow, bounds-strict and object-size call
/// where C++ leaves the result undefined and a host and a GPU may differ: before a shift by a negative number
/// or by at least the width of the type; before a conversion to an integer type that cannot hold the value;
/// before an index out of bounds, which would reach adjacent memory or another register; and before an access
/// through a pointer beyond the variable that the compiler knows it points into.
///
/// libubsan, which usually defines these functions, is not linked. Outside a traced block the functions do
/// nothing, except for the one for indices, which ends the block in every mode.
///
/// This file also handles comparisons, before which -fsanitize-coverage=trace-cmp inserts calls, and replaces
/// the C library's maximum and minimum: only these operations can hide that a local variable was
/// uninitialised, because their result does not show it.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <type_traits>

#include "common/simulator/block/worker.h"
#include "common/simulator/source_lines.h"
#include "common/simulator/trace/sites.h"
#include "common/simulator/trace/tracer.h"

namespace {

std::string described(const char* what, const std::string& problem, const void* return_address) {
  const flashbook::sim::Site site = flashbook::sim::site_of_code(return_address);
  return what + (" at " + flashbook::sim::line_of(site).described()) + ": " + problem;
}

void report(const char* what, const std::string& problem, const void* return_address) {
  if (flashbook::sim::current_tracer)
    flashbook::sim::current_worker->scheduler.abandon(described(what, problem, return_address));
}

/// The value of every byte of an uninitialised local variable, set by g++ -ftrivial-auto-var-init=pattern.
constexpr uint64_t kNoValue = 0xfefefefefefefefe;

/// Reports an uninitialised operand; both operands are floats, doubles, or integers of their sizes.
template <typename T>
inline void require_value(const char* what, T a, T b, const void* return_address) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  if (std::bit_cast<Bits>(a) != Bits(kNoValue) && std::bit_cast<Bits>(b) != Bits(kNoValue)) [[likely]]
    return;
  report(what,
         "an operand is an uninitialised local variable (or was computed from one). Here every byte of it is "
         "0xfe, which is -1.7e38 as a float; on a GPU it holds whatever was in its register: initialise it, "
         "a running maximum to -INFINITY and a sum to 0",
         return_address);
}

/// The compiler's description of an out-of-bounds index or pointer: the beginning of clang's OutOfBoundsData
/// and TypeMismatchData.
struct Described {
  const char* file;
  uint32_t line, column;
  struct Type {
    uint16_t kind, info;
    char name[1];  ///< "'float [4]'", null-terminated
  } const* type;
};

}  // namespace

extern "C" {

float fmaxf(float a, float b) noexcept {
  require_value("fmaxf", a, b, __builtin_return_address(0));
  if (a > b) return a;
  if (a < b) return b;
  if (a == b) return std::signbit(a) ? b : a;
  return std::isnan(b) ? a : b;
}

float fminf(float a, float b) noexcept {
  require_value("fminf", a, b, __builtin_return_address(0));
  if (a < b) return a;
  if (a > b) return b;
  if (a == b) return std::signbit(a) ? a : b;
  return std::isnan(b) ? a : b;
}

// Shorter integers have too few values to reserve one as a marker.
#define FLASHBOOK_COMPARISON(suffix, type)                          \
  void __sanitizer_cov_trace_##suffix(type a, type b) {             \
    require_value("comparison", a, b, __builtin_return_address(0)); \
  }
FLASHBOOK_COMPARISON(cmpf, float)
FLASHBOOK_COMPARISON(cmpd, double)
FLASHBOOK_COMPARISON(cmp4, uint32_t)
FLASHBOOK_COMPARISON(cmp8, uint64_t)
FLASHBOOK_COMPARISON(const_cmp4, uint32_t)
FLASHBOOK_COMPARISON(const_cmp8, uint64_t)
#undef FLASHBOOK_COMPARISON
void __sanitizer_cov_trace_cmp1(uint8_t, uint8_t) {}
void __sanitizer_cov_trace_cmp2(uint16_t, uint16_t) {}
void __sanitizer_cov_trace_const_cmp1(uint8_t, uint8_t) {}
void __sanitizer_cov_trace_const_cmp2(uint16_t, uint16_t) {}
void __sanitizer_cov_trace_switch(uint64_t value, uint64_t* cases) {
  if (cases[1] == 32) require_value("switch", uint32_t(value), 0u, __builtin_return_address(0));
}

void __ubsan_handle_shift_out_of_bounds(void*, void*, void*) {
  report("shift",
         "by a negative number of bits, or by at least the width of the type. The result is undefined in "
         "C++: an H200 shifts everything out (~0u >> 32 is 0), but a CPU usually takes the number of bits "
         "modulo the width. Handle that case separately",
         __builtin_return_address(0));
}

void __ubsan_handle_float_cast_overflow(void*, void*) {
  report("conversion to an integer",
         "the number is NaN or does not fit. The result is undefined in C++; a GPU gives the nearest integer "
         "that fits, and a host may give a different one. Clamp the number first",
         __builtin_return_address(0));
}

// Never returns, in any mode, so that loops over arrays need not save registers for the call.
[[noreturn]] void __ubsan_handle_out_of_bounds_abort(void* data, void* index) {
  const auto* array = static_cast<const Described*>(data);
  const std::string report = described("index",
                                       "out of bounds, " + std::to_string(std::intptr_t(index)) +
                                           " in an array of type " + array->type->name +
                                           ". It would access whatever is next to the array; check that no "
                                           "index exceeds the last row, column or stage",
                                       __builtin_return_address(0));
  if (flashbook::sim::current_worker) flashbook::sim::current_worker->scheduler.abandon(report);
  std::fprintf(stderr, "%s\n", report.c_str());  // outside any kernel
  std::abort();
}

void __ubsan_handle_type_mismatch_v1(void* data, void*) {
  const auto* access = static_cast<const Described*>(data);
  report("pointer",
         "out of bounds, it points to a " + std::string(access->type->name) +
             " beyond the array that it was computed from. It would access whatever is next to the array; "
             "check that no index exceeds the last row, column or stage",
         __builtin_return_address(0));
}
}

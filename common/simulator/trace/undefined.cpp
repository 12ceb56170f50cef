/// \file
/// The calls that -fsanitize=shift-exponent, float-cast-overflow and bounds-strict plant in a kernel, where
/// C++ leaves the result undefined, and a host and a GPU may differ: before a shift by as many bits as the
/// type has, or more, or by a negative number; before a real number that does not fit becomes an integer; and
/// before an index leaves its array, for a neighbour in the same memory, or in a register.
///
/// libubsan, which would usually answer them, is not linked. Outside a traced block they do nothing.
#include <cstdint>
#include <string>

#include "common/simulator/block/worker.h"
#include "common/simulator/source_lines.h"
#include "common/simulator/trace/sites.h"
#include "common/simulator/trace/tracer.h"

namespace {

void report(const char* what, const std::string& problem, const void* return_address) {
  if (!flashbook::sim::current_tracer) return;
  const flashbook::sim::Site site = flashbook::sim::site_of_code(return_address);
  flashbook::sim::current_worker->scheduler.abandon(
      what + (" at " + flashbook::sim::source_lines({&site, 1}).at(site).described()) + ": " + problem);
}

/// What the compiler says of an index that left its array: the beginning of clang's OutOfBoundsData.
struct Array {
  const char* file;
  uint32_t line, column;
  struct Type {
    uint16_t kind, info;
    char name[1];  ///< "'float [4]'", with a zero behind it
  } const* type;
};

}  // namespace

extern "C" {

void __ubsan_handle_shift_out_of_bounds(void*, void*, void*) {
  report(
      "shift",
      "by a negative number of bits, or by as many as the number has or more. C++ leaves the result "
      "undefined; an "
      "H200 shifts everything out (~0u >> 32 is 0), a host takes the count modulo 32. Treat that case apart",
      __builtin_return_address(0));
}

void __ubsan_handle_float_cast_overflow(void*, void*) {
  report("conversion to an integer",
         "the number is NaN or does not fit. C++ leaves the result undefined; a GPU gives the nearest "
         "integer that "
         "fits, and a host another. Clamp it before",
         __builtin_return_address(0));
}

void __ubsan_handle_out_of_bounds(void* data, void* index) {
  const auto* array = static_cast<const Array*>(data);
  report(
      "index",
      "out of bounds, " + std::to_string(std::intptr_t(index)) + " in an array of type " + array->type->name +
          ". It leads to what lies next to the array, or to nothing; check it against the last row, column "
          "or stage",
      __builtin_return_address(0));
}
}

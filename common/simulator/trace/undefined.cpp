/// \file
/// The calls that -fsanitize=shift-exponent and -fsanitize=float-cast-overflow plant in a kernel, where C++
/// leaves the result undefined, and a host and a GPU differ: before a shift by as many bits as the type has,
/// or more, or by a negative number, and before a real number that does not fit becomes an integer.
///
/// libubsan, which would usually answer them, is not linked. Outside a traced block they do nothing.
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
      what + (" at " + flashbook::sim::source_lines({&site, 1}).at(site).place) + ": " + problem);
}

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
}

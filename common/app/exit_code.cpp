#include "common/app/exit_code.h"

#include <iostream>
#include <new>

#include "common/attention/error.h"
#include "common/device/device.h"

namespace flashbook {

int exit_code(const char* name, const std::function<int()>& program) {
  const auto fail = [&](const std::string& reason, int code) {
    std::cerr << name << ": " << reason << "\n";
    return code;
  };
  try {
    return program();
  } catch (const InputError& error) {
    return fail(error.what(), kWrongUsage);
  } catch (const device::HardwareMissing& error) {
    return fail(error.what(), kHardwareMissing);
  } catch (const std::bad_alloc&) {
    return fail("out of memory: make --batch, --heads or --seqlen smaller", kWrongUsage);
  } catch (const std::exception& error) {
    return fail(error.what(), kWrongResult);
  }
}

}  // namespace flashbook

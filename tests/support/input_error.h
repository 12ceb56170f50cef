/// \file
/// Messages of InputError.
#pragma once
#include <string>

#include "common/attention/error.h"

namespace flashbook::testing {

/// Returns the message of the InputError that `call()` throws; empty if it throws none.
template <typename Call>
std::string input_error_of(Call call) {
  try {
    call();
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

}  // namespace flashbook::testing

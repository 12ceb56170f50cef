/// \file
/// The error that users can fix by changing their input.
#pragma once
#include <stdexcept>

#include "common/concat.h"

namespace flashbook {

/// Input, a problem or an option that cannot be used. The message is one line and suggests a fix. Exit code
/// 2.
struct InputError : ErrorOfParts<std::runtime_error> {
  using ErrorOfParts::ErrorOfParts;
};

}  // namespace flashbook

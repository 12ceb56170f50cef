/// \file
/// The one error that a user can cure by giving other input.
#pragma once
#include <stdexcept>

#include "common/concat.h"

namespace flashbook {

/// Input, shape or option that cannot be used. The message is one line and names the cure. Exit code 2.
struct InputError : ErrorOfParts<std::runtime_error> {
  using ErrorOfParts::ErrorOfParts;
};

}  // namespace flashbook

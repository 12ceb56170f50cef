/// \file
/// How tokens are distributed over the GPUs.
#pragma once
#include <string>

namespace flashbook {

enum class TokenOrder { contiguous, zigzag, striped };

/// Returns the name used on the command line: "contiguous", "zigzag", "striped".
std::string name_of(TokenOrder order);

}  // namespace flashbook

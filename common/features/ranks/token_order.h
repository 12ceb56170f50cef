/// \file
/// How tokens are dealt out to the GPUs among which they are divided.
#pragma once
#include <string>

namespace flashbook {

enum class TokenOrder { contiguous, zigzag, striped };

/// The name used on the command line: "contiguous", "zigzag", "striped".
std::string name_of(TokenOrder order);

}  // namespace flashbook

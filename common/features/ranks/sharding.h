/// \file
/// How tokens are distributed over the GPUs.
#pragma once
#include <optional>
#include <string>

namespace flashbook {

enum class TokenOrder { contiguous, zigzag, striped };

/// Returns the name used on the command line: "contiguous", "zigzag", "striped".
std::string name_of(TokenOrder order);

/// The GPUs that share the tokens. A problem's tensors hold the tokens of all of them.
struct Sharding {
  int ranks = 1;                         ///< number of GPUs
  std::optional<TokenOrder> order = {};  ///< the tokens of each GPU; none: the step's own order

  bool operator==(const Sharding&) const = default;
};

}  // namespace flashbook

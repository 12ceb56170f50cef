/// \file
/// How tensors are stored in e4m3.
#pragma once
#include <string>

namespace flashbook {

/// Which elements of an e4m3 tensor share a scale, the factor on their encodings.
enum class Scaling {
  tensor,  ///< all elements
  head,    ///< a key head, or the query heads that read it
  block    ///< 64 rows of Q, 128 rows of K or V; with pages, each head's part of a page
};

constexpr int kQueriesPerScale = 64;  ///< rows of Q that share a scale in Scaling::block
constexpr int kKeysPerScale = 128;    ///< rows of K or V that share a scale in Scaling::block

/// Returns the name used on the command line: "tensor", "head", "block".
std::string name_of(Scaling scaling);

/// Settings of e4m3 tensors, which do not affect tensors of other types.
struct E4m3 {
  Scaling scaling = Scaling::tensor;
  bool mean_subtracted = false;  ///< K and V are stored without the means of their columns, which are tensors
  bool cache = false;            ///< K and V are e4m3, whatever type Q and O have; for decoding

  bool operator==(const E4m3&) const = default;
};

}  // namespace flashbook

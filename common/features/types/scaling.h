/// \file
/// Which elements of an e4m3 tensor share a scale.
#pragma once
#include <string>

namespace flashbook {

/// The elements of an e4m3 tensor that share a scale, the factor by which their encodings are multiplied.
enum class Scaling {
  tensor,  ///< all elements
  head,    ///< a key head, or the query heads that read it
  block    ///< 64 rows of Q, 128 rows of K or V; with pages, each head's part of a page
};

constexpr int kQueriesPerScale = 64;  ///< rows of Q that share a scale in Scaling::block
constexpr int kKeysPerScale = 128;    ///< rows of K or V that share a scale in Scaling::block

/// Returns the name used on the command line: "tensor", "head", "block".
std::string name_of(Scaling scaling);

}  // namespace flashbook

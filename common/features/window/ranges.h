/// \file
/// Windows, prefixes, lengths and documents together: each query sees at most two ranges of keys, so the
/// class of a tile follows from its first and its last query.
#pragma once
#include "common/features/definition.h"

namespace flashbook::features {

extern const Mask kRanges;

}  // namespace flashbook::features

/// \file
/// Chapter 8: decoding, a few queries against a long cache of keys and values.
#pragma once
#include "common/app/chapter.h"

namespace flashbook {

extern const Chapter kDecoding;

}  // namespace flashbook

/// \file
/// Chapter 7: the backward pass, which computes scores and probabilities again.
#pragma once
#include "common/app/chapter.h"

namespace flashbook {

extern const Chapter kBackward;

}  // namespace flashbook

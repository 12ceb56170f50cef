/// \file
/// Chapter 5's ablation: its last step with one switch turned at a time, as the steps of a chapter of its
/// own.
#pragma once
#include "common/app/chapter.h"

namespace flashbook {

/// How a version runs; one function for each head dimension, compiled apart.
/// \param which  a step of the ablation, 1 ... ; 1 is the chapter's step as it is
template <int kHeadDim>
void run_ablation(const Shape& shape, const Tensors& tensors, device::Stream stream, int which);

}  // namespace flashbook

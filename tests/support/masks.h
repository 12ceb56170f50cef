/// \file
/// Masks by chance, and what they mean.
#pragma once
#include <random>
#include <vector>

#include "common/attention/features.h"
#include "common/attention/shape.h"

namespace flashbook::testing {

/// A problem of one entry under a mask, in bf16: four query heads that share two key heads.
Shape masked_shape(int seqlen_q, int seqlen_k, Visibility visibility, int head_dim = 64);

/// Whether a query sees a key, straight from the definitions in visibility.h.
bool sees_by_definition(const Shape& shape, int batch, int head, int query, int key);

/// Small lengths, and any combination of the parts of a Visibility. The shape is valid.
Shape random_mask(std::mt19937& random);

/// `shape`, which has no feature but its element type, with one more and with those that this one needs.
Shape with_feature(Feature feature, Shape shape);

/// Slopes of each head of each sequence, all of them different.
std::vector<float> slopes_by_sequence(const Shape& shape);

/// A bias by distance of whole eighths.
RelativeBias random_bias(std::mt19937& random, int heads, int reach);

/// The shape with its mask, whatever it is, pair by pair and by nothing else.
Shape with_dense_mask(Shape shape);

/// The shape with its mask as intervals by key, and by nothing else. The queries that see a key must follow
/// one another; throws std::logic_error otherwise.
Shape with_columns(Shape shape);

}  // namespace flashbook::testing

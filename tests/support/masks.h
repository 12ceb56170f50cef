/// \file
/// Random masks, and their meaning.
#pragma once
#include <random>
#include <vector>

#include "common/attention/features.h"
#include "common/attention/shape.h"

namespace flashbook::testing {

/// A problem with one batch entry and a mask, in bf16: four query heads share two key heads.
Shape masked_shape(int seqlen_q, int seqlen_k, Visibility visibility, int head_dim = 64);

/// Whether a query sees a key, straight from the definitions in visibility.h.
bool sees_by_definition(const Shape& shape, int batch, int head, int query, int key);

/// A valid shape with small lengths and any combination of the parts of a Visibility.
Shape random_mask(std::mt19937& random);

/// `shape`, whose only feature is its element type, with one more feature and those that it requires.
Shape with_feature(Feature feature, Shape shape);

/// Slopes for each head of each sequence, all different.
std::vector<float> slopes_by_sequence(const Shape& shape);

/// A distance bias in multiples of 1/8.
RelativeBias random_bias(std::mt19937& random, int heads, int reach);

/// The shape with its mask expressed only pair by pair.
Shape with_dense_mask(Shape shape);

/// The shape with its mask expressed only as an interval of queries per key. Throws std::logic_error if the
/// queries that see a key are not consecutive.
Shape with_columns(Shape shape);

}  // namespace flashbook::testing

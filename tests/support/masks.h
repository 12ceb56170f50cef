/// \file
/// Random masks, and their meaning.
#pragma once
#include <random>
#include <vector>

#include "common/attention/shape.h"
#include "common/features/definition.h"

namespace flashbook::testing {

/// Returns a problem with one batch entry and a mask, in bf16: four query heads share two key heads.
Shape masked_shape(int seqlen_q, int seqlen_k, Visibility visibility, int head_dim = 64);

/// Returns whether a query sees a key, straight from the plain definitions of all masks.
bool sees_by_definition(const Shape& shape, int batch, int head, int query, int key);

/// Returns a valid shape with small lengths and any combination of the masks among these features.
Shape random_mask(std::mt19937& random, Features among = Features::every());

/// `shape`, whose only feature is its element type, with one more feature, and whatever that requires.
Shape with_feature(Feature feature, Shape shape);

/// Slopes for each head of each sequence, all different.
std::vector<float> slopes_by_sequence(const Shape& shape);

/// Returns a distance bias in multiples of 1/8.
RelativeBias random_bias(std::mt19937& random, int heads, int reach);

/// Returns the shape with its mask expressed only pair by pair.
Shape with_dense_mask(Shape shape);

/// Returns the shape with its mask expressed only as an interval of queries per key. Throws std::logic_error
/// if the queries that see a key are not consecutive.
Shape with_columns(Shape shape);

}  // namespace flashbook::testing

/// \file
/// Random masks, and their meaning.
#pragma once
#include <random>
#include <vector>

#include "common/attention/spec.h"
#include "common/features/definition.h"

namespace flashbook::testing {

/// Returns a problem with one batch entry and a mask, in bf16: four query heads share two key heads.
Spec masked_spec(int seqlen_q, int seqlen_k, Visibility visibility, int head_dim = 64);

/// Returns whether a query sees a key, straight from the plain definitions of all masks.
bool sees_by_definition(const Spec& spec, int batch, int head, int query, int key);

/// Returns how often a visible key counts: as often as the query's list has it, or once.
int times_listed(const Spec& spec, int batch, int query, int key);

/// Returns a valid problem with small lengths and any combination of the masks among these features.
Spec random_mask(std::mt19937& random, Features among = Features::every());

/// Returns `spec`, whose only feature is its element type, with one more feature and whatever that requires.
Spec with_feature(Feature feature, Spec spec);

/// Returns slopes for each head of each sequence, all different.
std::vector<float> slopes_by_sequence(const Spec& spec);

/// Returns a distance bias in multiples of 1/8.
RelativeBias random_bias(std::mt19937& random, int heads, int reach);

/// Returns the problem with its mask expressed only pair by pair.
Spec with_dense_mask(Spec spec);

/// Returns the problem with its mask expressed only as an interval of queries per key. Throws
/// std::logic_error if the queries that see a key are not consecutive.
Spec with_columns(Spec spec);

}  // namespace flashbook::testing

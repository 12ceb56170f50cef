/// \file
/// The shapes that chapters are tested on.
#pragma once
#include <string>
#include <vector>

#include "common/app/chapter.h"

namespace flashbook::testing {

/// Returns every combination of: N in {1, 17, 63, 64, 65, 128, 129, 333}; seqlen_k equal, longer, shorter;
/// head_dim 64, 128, 256; the chapter's types; one or three query heads per key head; causal or not.
std::vector<Spec> every_spec(const Chapter& chapter);

/// Returns a small set of those shapes (about 25) in which all pairs of values of two parameters occur.
std::vector<Spec> pairwise_specs(const Chapter& chapter);

/// Returns up to eight of these that take little time, for slow runs; without f16 if there is bf16, whose
/// kernels do the same. If head_dim is given, all have it instead of their own.
std::vector<Spec> quick_specs(const Chapter& chapter, int head_dim = 0);

/// Returns a name for GoogleTest: "q127_k190_d64_f16_group4_causal".
std::string name_of(const Spec& spec);

}  // namespace flashbook::testing

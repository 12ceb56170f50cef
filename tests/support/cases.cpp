#include "tests/support/cases.h"

#include <algorithm>
#include <array>

#include "common/attention/cost.h"

namespace flashbook::testing {
namespace {

constexpr int kLengths[] = {1, 17, 63, 64, 65, 128, 129, 333};
constexpr int kHeadDims[] = {64, 128, 256};
constexpr int kGroups[] = {1, 3};  // query heads that share a key head
enum { kSame, kLonger, kShorter, kRelations };

/// A shape as one index per parameter: length, relation of seqlen_k, head_dim, type, group, causal.
using Choice = std::array<int, 6>;

Choice sizes(const Chapter& chapter) {
  return {int(std::size(kLengths)), kRelations, int(std::size(kHeadDims)), int(chapter.dtypes.size()),
          int(std::size(kGroups)),  2};
}

Spec spec_of(const Choice& choice, const Chapter& chapter) {
  Spec spec;
  spec.seqlen_q = kLengths[choice[0]];
  // Neither a multiple nor a simple fraction, so that a causal mask's diagonal crosses tiles at irregular
  // positions. With fewer keys under a causal mask, the first queries see none.
  spec.seqlen_k = choice[1] == kSame     ? spec.seqlen_q
                  : choice[1] == kLonger ? spec.seqlen_q + spec.seqlen_q / 2 + 5
                                         : (spec.seqlen_q + 2) / 3;
  spec.set_head_dim(kHeadDims[choice[2]]);
  spec.dtype = chapter.dtypes[choice[3]];
  // Two key heads where that is cheap, to expose kernels that mix up heads.
  spec.kv_heads = spec.seqlen_q < 333 ? 2 : 1;
  spec.heads = kGroups[choice[4]] * spec.kv_heads;
  spec.batch = spec.heads <= 2 && spec.seqlen_q < 333 ? 2 : 1;
  spec.visibility = Visibility::causal_if(choice[5] == 1);
  spec.scale = default_scale(spec.head_dim);
  return spec;
}

std::vector<Choice> every_choice(const Chapter& chapter) {
  const Choice size = sizes(chapter);
  std::vector<Choice> all;
  Choice choice{};
  for (;;) {
    all.push_back(choice);
    int i = 0;
    while (i < int(size.size()) && ++choice[i] == size[i]) choice[i++] = 0;
    if (i == int(size.size())) return all;
  }
}

/// Returns whether a choice repeats another one: a single key cannot be shortened.
bool is_repetition(const Choice& choice) { return kLengths[choice[0]] == 1 && choice[1] == kShorter; }

/// Pairs of values of two parameters: parameter i has value a, parameter j > i has value b. A table rather
/// than a set of tuples, which took most of a second in every unoptimised test program.
struct Pairs {
  static constexpr int kParameters = std::tuple_size_v<Choice>, kMaxValues = std::size(kLengths);
  bool has[kParameters][kMaxValues][kParameters][kMaxValues] = {};  // [i][a][j][b]

  /// Returns the number of a choice's pairs in the table.
  int count(const Choice& choice) const {
    int found = 0;
    for (int i = 0; i < kParameters; ++i)
      for (int j = i + 1; j < kParameters; ++j) found += has[i][choice[i]][j][choice[j]];
    return found;
  }

  /// Adds or removes a choice's pairs.
  void set(const Choice& choice, bool present) {
    for (int i = 0; i < kParameters; ++i)
      for (int j = i + 1; j < kParameters; ++j) has[i][choice[i]][j][choice[j]] = present;
  }
};

}  // namespace

std::vector<Spec> every_spec(const Chapter& chapter) {
  std::vector<Spec> specs;
  for (const Choice& choice : every_choice(chapter))
    if (!is_repetition(choice)) specs.push_back(spec_of(choice, chapter));
  return specs;
}

std::vector<Spec> pairwise_specs(const Chapter& chapter) {
  std::vector<Choice> all = every_choice(chapter);
  std::erase_if(all, is_repetition);
  Pairs missing;
  for (const Choice& choice : all) missing.set(choice, true);

  // Greedily picks the choice that covers the most missing pairs.
  std::vector<Spec> specs;
  for (;;) {
    const Choice* best = nullptr;
    int best_count = 0;
    for (const Choice& choice : all)
      if (const int count = missing.count(choice); count > best_count) best_count = count, best = &choice;
    if (!best) return specs;
    specs.push_back(spec_of(*best, chapter));
    missing.set(*best, false);
  }
}

std::vector<Spec> quick_specs(const Chapter& chapter, int head_dim) {
  constexpr double kMaxFlops = 3e7;
  constexpr std::size_t kCount = 8;
  std::vector<Spec> specs = pairwise_specs(chapter);
  const bool has_bf16 = std::ranges::find(chapter.dtypes, DType::bf16) != chapter.dtypes.end();
  std::erase_if(specs, [&](const Spec& spec) {
    return flops(spec) > kMaxFlops || (spec.dtype == DType::f16 && has_bf16);
  });
  std::vector<Spec> chosen;
  for (std::size_t i = 0; i < kCount; ++i) chosen.push_back(specs[specs.size() * i / kCount]);
  if (head_dim == 0) return chosen;
  std::vector<Spec> distinct;  // two of them may differ in head_dim only
  for (Spec& spec : chosen) {
    spec.set_head_dim(head_dim);
    spec.scale = default_scale(head_dim);
    const auto is_same = [&](const Spec& other) { return name_of(other) == name_of(spec); };
    if (std::ranges::none_of(distinct, is_same)) distinct.push_back(spec);
  }
  return distinct;
}

std::string name_of(const Spec& spec) {
  return "q" + std::to_string(spec.seqlen_q) + "_k" + std::to_string(spec.seqlen_k) + "_d" +
         std::to_string(spec.head_dim) + "_" + std::string(flashbook::name_of(spec.dtype)) + "_batch" +
         std::to_string(spec.batch) + "_heads" + std::to_string(spec.heads) + "of" +
         std::to_string(spec.kv_heads) + (spec.causal() ? "_causal" : "_full");
}

}  // namespace flashbook::testing

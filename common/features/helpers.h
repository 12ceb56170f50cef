/// \file
/// Functions shared by the definitions of features.
#pragma once
#include <algorithm>
#include <cstddef>
#include <initializer_list>

#include "common/attention/error.h"
#include "common/concat.h"
#include "common/features/definition.h"

namespace flashbook::features {

template <typename... Parts>
void require(bool right, const Parts&... message) {
  if (!right) throw InputError(message...);
}

inline void require_positive(const char* option, int value) {
  require(value >= 1, option, " is ", value, ": give at least 1");
}

inline void require_addressable(const char* options, int batch, int heads, int seqlen, int head_dim) {
  // A double represents these products precisely enough, whereas an int64_t could overflow.
  require(double(batch) * heads * seqlen * head_dim <= 0x1p40,
          "a tensor has more than 2^40 elements: give a smaller ", options);
}

inline void require_count(const char* name, std::size_t count, int64_t wanted, const char* what) {
  require(int64_t(count) == wanted, name, " has ", count, " numbers: give ", wanted, ", ", what);
}

inline void require_range(const char* name, const Array<int>& values, int64_t largest, const char* what) {
  for (const int value : values)
    require(value >= 0 && value <= largest, name, " has ", value, ": give numbers from 0 to ", largest, ", ",
            what);
}

/// Throws unless the numbers ascend from 0 to `end`.
inline void require_sums(const char* name, const Array<int>& first, int end, const char* what) {
  if (first.is_on_device()) return;
  require(first.front() == 0 && first.back() == end && std::ranges::is_sorted(first), name,
          " does not ascend from 0 to ", end, ": give the sums of the ", what);
}

/// Returns the description of a C struct T, from which `Read` adds the feature to a problem.
template <typename T, int kind, typename Read>
constexpr CStruct c_struct(Read, std::initializer_list<CStruct::Pointer> pointers = {}) {
  static_assert(sizeof(T) % 8 == 0, "add a field `unused`: structs follow one another without gaps");
  CStruct described = {kind, sizeof(T),
                       [](const void* from, Spec& to) { Read{}(*static_cast<const T*>(from), to); },
                       pointers.size()};
  std::ranges::copy(pointers, described.pointers);
  return described;
}

constexpr std::size_t place_of(TableId id) { return offsetof(Tensors, tables) + sizeof(void*) * int(id); }

/// Returns a C caller's array, never empty: `validate` rejects wrong numbers.
template <typename T>
Array<T> on_device(double entries) {
  return Array<T>::on_device(int64_t(std::clamp(entries, 1.0, 0x1p62)));
}

/// Returns the class of a tile in which any, or all, pairs are visible.
constexpr TileClass class_of(bool any, bool all) {
  return all ? TileClass::full : any ? TileClass::partial : TileClass::skip;
}

/// Returns a number from `least` to `most`, inclusive.
inline int between(std::mt19937& random, int least, int most) {
  return least + int(random() % unsigned(most - least + 1));
}

inline bool one_in(std::mt19937& random, int count) { return random() % unsigned(count) == 0; }

/// Returns `parts` + 1 ascending numbers from 0 to `end`.
inline std::vector<int> cuts(std::mt19937& random, int parts, int end) {
  std::vector<int> cuts = {0, end};
  while (int(cuts.size()) < parts + 1) cuts.push_back(between(random, 0, end));
  std::ranges::sort(cuts);
  return cuts;
}

}  // namespace flashbook::features

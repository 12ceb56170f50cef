//| # The tile operations of step 4
//|
//| These functions load a tile as floats, multiply two tiles, and find a row's maximum and sum.
//|
//| Every function is a plain loop nest. The products, the exponentials and the sums become vector
//| instructions with g++ and clang++ at `-O3`. None of them needs `-ffast-math`, because no loop requires
//| reordering a sum: neighbouring lanes always work on different results.
#pragma once
#include <algorithm>
#include <cstdint>

#include "common/numeric/float_formats.h"

namespace flashbook {

//| ## Loading a tile
//|
//| A tile is widened to float once and then used by every query of its query tile. K is also transposed. A
//| row of the transposed tile holds one dimension of all keys side by side, so a vector holds the scores of
//| neighbouring keys. The transposition moves one number at a time, but only once for 64 queries.

/// Loads `rows` rows of `source` as floats; the tile's other rows become 0.
template <int kRows, int kHeadDim, typename T>
[[gnu::always_inline]] inline void load_tile(const T* source,  // [rows, kHeadDim]
                                             int rows, float (&tile)[kRows][kHeadDim]) {
  for (int row = 0; row < rows; ++row)
    for (int d = 0; d < kHeadDim; ++d) tile[row][d] = to_float(source[row * kHeadDim + d]);
  // Rows beyond the last still hold the previous tile. Its weights will be 0, but 0 times infinity is NaN.
  for (int row = rows; row < kRows; ++row) std::fill_n(tile[row], kHeadDim, 0.0f);
}

/// Loads rows into a transposed tile. Rows beyond the last become zeros.
template <int kRows, int kHeadDim, typename T>
void load_transposed_tile(const T* source,  // [rows, kHeadDim]
                          int rows, float (&tile)[kHeadDim][kRows]) {
  for (int d = 0; d < kHeadDim; ++d) {
    for (int row = 0; row < rows; ++row) tile[d][row] = to_float(source[row * kHeadDim + d]);
    std::fill(tile[d] + rows, tile[d] + kRows, 0.0f);  // no keys here, so clear the old ones
  }
}

//| ## Multiplying tiles
//|
//| Both products of attention are $C \mathrel{+}= A B$, with vectors along the rows of $B$: the scores are Q
//| times the transposed K, and O is the weights times V. One sweep adds eight rows of $B$ to a row of $C$, so
//| each element of $C$ is loaded and stored once for eight multiply-adds. The eight factors from $A$ stay in
//| registers, half of AVX2's sixteen. Each sum is taken in the same order as in step 1.

/// c += a * b for the first `rows` rows of a and c.
template <int kRows, int kInner, int kColumns>
void multiply_add(const float (&a)[kRows][kInner], const float (&b)[kInner][kColumns], int rows,
                  float (&c)[kRows][kColumns]) {
  constexpr int kUnroll = 8;  // rows of b per sweep: 16 factors would take every AVX2 register
  static_assert(kInner % kUnroll == 0, "The sweep has no code for a remainder.");
  for (int row = 0; row < rows; ++row)
    for (int inner = 0; inner < kInner; inner += kUnroll) {
      float factor[kUnroll];
      for (int i = 0; i < kUnroll; ++i) factor[i] = a[row][inner + i];  // each is broadcast to a vector
      for (int column = 0; column < kColumns; ++column) {  // becomes vectors: 8 columns at a time
        float sum = c[row][column];  // a chain of 8 additions, but the next columns do not wait for it
        for (int i = 0; i < kUnroll; ++i) sum += factor[i] * b[inner + i][column];
        c[row][column] = sum;
      }
    }
}

//| ## Reducing a row
//|
//| A sum over one row would be a chain again, so it is split into eight partial sums. Element $j$ goes to
//| lane $j \bmod 8$, and at the end, the upper half of the lanes is added to the lower half, three times. At
//| best, the eight form one vector. If a compiler does not see that, they are still eight independent chains.
//|
//| The merge rule allows any order, so it also allows this one within a row. A GPU's warp reduces its lanes
//| in the same way, with shuffles.

constexpr int kLanes = 8;  // one AVX2 vector

/// Reduces the elements of `row` with an operation whose order does not matter.
template <int kColumns, typename Combine>
float reduce(const float (&row)[kColumns], Combine combine) {
  static_assert(kColumns % kLanes == 0, "Every lane gets the same number of elements.");
  float lanes[kLanes];
  std::copy_n(row, kLanes, lanes);
  for (int column = kLanes; column < kColumns; column += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = combine(lanes[lane], row[column + lane]);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) lanes[lane] = combine(lanes[lane], lanes[lane + half]);
  return lanes[0];
}

/// Returns the largest element of `row`.
template <int kColumns>
float max_of(const float (&row)[kColumns]) {
  return reduce(row, [](float a, float b) { return std::max(a, b); });
}

/// Returns the sum of `row`.
template <int kColumns>
float sum_of(const float (&row)[kColumns]) {
  return reduce(row, [](float a, float b) { return a + b; });
}

}  // namespace flashbook

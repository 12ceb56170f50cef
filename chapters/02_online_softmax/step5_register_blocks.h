//| # Step 5: blocks of registers
//|
//| Step 4 keeps a core's multiply-add units busy for about a third of the time. This step keeps its tiles and
//| changes the innermost loops. `multiply_add` loads a vector of $B$ for every multiply-add, and a core loads
//| at most two vectors per cycle, so its two units wait for loads. It also transposes a tile of $K$ again for
//| every tile of queries, one number at a time.
//|
//| **Idea.** A block of 4 by 4 vectors of the product stays in registers while the loop runs over the inner
//| dimension, so 8 loads feed 16 multiply-adds. And the lanes of a vector belong to *queries*, not to keys.
//| The scores then come out transposed, $S^T = K Q^T$ and $O^T = V^T P^T$. Only $Q$ and $O$ have to be
//| transposed, once, and never $K$ or $V$. The softmax benefits, too: maximum and sum run down a column, for
//| 16 queries side by side, and no lane has to read from another.
//|
//| **Budget of a core**, in KB at head_dim 64 / 128 / 256: $Q^T$, $O^T$ and the tiles of $K$ and $V$, 16 / 32
//| / 64 each, and $S^T$, 16, as in step 4. The register budget is new. AVX-512 has 32 registers of 16 floats:
//| 16 sums, 4 vectors of $B$, one factor. AVX2 has 16 registers of 8 floats: 8 sums, 2 vectors, one factor.
//|
//| In chapter 4, a warp keeps a block of sums in registers for the same reason.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numbers>
#include <type_traits>

#include "chapters/02_online_softmax/exp2.h"
#include "chapters/02_online_softmax/rows.h"
#include "chapters/02_online_softmax/tile.h"
#include "common/attention/parallel.h"
#include "common/attention/spec.h"
#include "common/numeric/widest_vectors.h"

namespace flashbook {

constexpr int kQueriesPerTask = 64;  // queries per tile: 4 vectors of 16, so one block is as wide as a tile
constexpr int kKeysPerTile = 64;

//| ## A vector type
//|
//| Step 4 left vectors to the compiler. It uses those of the machine that it compiles for, and g++ uses only
//| half the width of AVX-512. Here, vectors have a type. g++ and clang++ support vectors of any width, with
//| `+`, `*`, `<` and `?:` lane by lane, and split them as the processor requires.
//| [`with_widest_vectors`](../../common/numeric/widest_vectors.h) compiles the code below three times, for
//| 16, 8 and 4 lanes, and selects a version for the processor at run time. A vector library such as Highway
//| does the same for more processors. For two products and one exponential, the compiler's own types need
//| less explanation.

/// Returns the vector at `address`, to read or to write.
template <typename Unit>
[[gnu::always_inline]] inline auto& vector_at(float* address) {
  return *reinterpret_cast<typename Unit::Types::Floats*>(address);
}

template <typename Unit>
[[gnu::always_inline]] inline const auto& vector_at(const float* address) {
  return *reinterpret_cast<const typename Unit::Types::Floats*>(address);
}

/// x becomes 2^x for x <= 0: exp2_fast, lane by lane.
template <typename Unit>
[[gnu::always_inline]] inline void exp2_of(typename Unit::Types::Floats& x) {
  using Floats = typename Unit::Types::Floats;
  constexpr float kRound = 0x1.8p23f;
  const Floats shifted = x + kRound;
  const Floats f = x - (shifted - kRound);
  Floats p = Floats{} + kExp2Coefficients[0];
  for (int i = 1; i <= kExp2Degree; ++i) p = p * f + kExp2Coefficients[i];
  const Floats two_to_n =
      (Floats)(((typename Unit::Types::Ints)shifted + 127) << 23);  // the bits, as in exp2_fast
  const Floats power = p * two_to_n;
  x = x < -126.0f ? Floats{} : power;  // also at -inf, where f is NaN
}

//| ## A block of a product
//|
//| The block is $C = A B$ or $C = C \cdot \text{factor} + A B$. Every sum is a separate variable, so all of
//| them stay in registers for the whole loop. An iteration loads a row of $B$, as many vectors as the block
//| is wide, and 4 numbers of $A$. It uses each number of $A$ for every vector, and each vector for all 4
//| numbers.
//|
//| The sums are also independent. A multiply-add takes 4 cycles and two start per cycle, so 8 must be in
//| flight at any time. The block has 16 sums, or 8 where there are 16 registers.
//|
//| The same loop computes both products. In $S^T = K Q^T$, a row of $A$ is a key. In $O^T = V^T P^T$, it is a
//| column of $V$, and the two strides of $A$ are swapped.

constexpr int kBlockRows = 4;

/// c = a * b, or c = c * factor + a * b: kBlockRows rows of kVectors vectors.
template <typename Unit, int kVectors, int kInner, bool kAdds>
[[gnu::always_inline]] inline void multiply_block(const float* a, int a_row, int a_inner,  // strides of a
                                                  const float* b,       // [kInner, kQueriesPerTask]
                                                  const float* factor,  // [kQueriesPerTask]
                                                  float* c)             // [kBlockRows, kQueriesPerTask]
{
  using Floats = typename Unit::Types::Floats;
  Floats sums[kBlockRows][kVectors];
  for (int row = 0; row < kBlockRows; ++row)
    for (int i = 0; i < kVectors; ++i) {
      const int at = i * Unit::kLanes;
      if constexpr (kAdds)
        sums[row][i] = vector_at<Unit>(c + row * kQueriesPerTask + at) * vector_at<Unit>(factor + at);
      else
        sums[row][i] = Floats{};
    }
  for (int inner = 0; inner < kInner; ++inner) {
    Floats b_row[kVectors];
    for (int i = 0; i < kVectors; ++i)
      b_row[i] = vector_at<Unit>(b + inner * kQueriesPerTask + i * Unit::kLanes);
    for (int row = 0; row < kBlockRows; ++row) {
      const float a_element = a[row * a_row + inner * a_inner];  // broadcast to all lanes
      for (int i = 0; i < kVectors; ++i) sums[row][i] += a_element * b_row[i];
    }
  }
  for (int row = 0; row < kBlockRows; ++row)
    for (int i = 0; i < kVectors; ++i)
      vector_at<Unit>(c + row * kQueriesPerTask + i * Unit::kLanes) = sums[row][i];
}

/// Computes all blocks of a product: `rows` rows, kQueriesPerTask columns.
template <typename Unit, int kRows, int kInner, bool kAdds>
[[gnu::always_inline]] inline void multiply_transposed(const float* a, int a_row, int a_inner, const float* b,
                                                       const float* factor, float* c) {
  constexpr int kVectors = Unit::kRegisters / 8;  // with 4 rows, half of the registers hold sums
  constexpr int kColumns = kVectors * Unit::kLanes;
  static_assert(kQueriesPerTask % kColumns == 0 && kRows % kBlockRows == 0,
                "A product is cut into whole blocks.");
  for (int row = 0; row < kRows; row += kBlockRows)
    for (int column = 0; column < kQueriesPerTask; column += kColumns)
      multiply_block<Unit, kVectors, kInner, kAdds>(a + row * a_row, a_row, a_inner, b + column,
                                                    factor + column, c + row * kQueriesPerTask + column);
}

//| ## The tiles of a core

/// The tiles of one task. Queries run along the rows, and so along the vectors.
template <int kHeadDim>
struct alignas(64) TransposedTiles {
  float q[kHeadDim][kQueriesPerTask];
  float k[kKeysPerTile][kHeadDim];  // for floats, used only if the last tile is incomplete
  float v[kKeysPerTile][kHeadDim];
  float scores[kKeysPerTile][kQueriesPerTask];  // later overwritten by the weights
  float o[kHeadDim][kQueriesPerTask];           // not yet divided by row_sum
  float row_max[kQueriesPerTask];               // in base 2: largest score * log2(e)
  float row_sum[kQueriesPerTask];
  float correction[kQueriesPerTask];  // factor for O, from the change of the maximum in this tile
  int visible[kQueriesPerTask];       // number of keys of this tile that each query sees
};

//| Neither product needs whole vectors of $K$ or $V$, only single numbers, which may be anywhere. So a full
//| tile of floats is used in place. Only other types and the last keys are copied.

/// Returns a tile of kKeysPerTile keys or values as floats: `source` itself, or `copy`, padded with zeros.
template <int kHeadDim, typename T>
[[gnu::always_inline]] inline const float* as_floats(const T* source,  // [keys, kHeadDim]
                                                     int keys, float (&copy)[kKeysPerTile][kHeadDim]) {
  if constexpr (std::is_same_v<T, float>)
    if (keys == kKeysPerTile) return source;
  load_tile(source, keys, copy);
  return &copy[0][0];
}

//| ## The softmax of a tile
//|
//| This is the softmax of step 4, for 16 queries at once. Where step 4 reduces over lanes, this runs down a
//| column: no lane reads from another, and the result is 16 maxima. O is not corrected here, but at the start
//| of a block, where its sums are loaded anyway.
//|
//| Only the tiles on the causal diagonal and the last tile have keys to mask, so only they pay for the
//| comparison.

/// Turns a column of scores of Unit::kLanes queries into weights, and merges their states with it.
template <typename Unit, int kHeadDim>
[[gnu::always_inline]] inline void softmax_columns(TransposedTiles<kHeadDim>& tiles, int column, bool masked,
                                                   float scale_log2) {
  using Floats = typename Unit::Types::Floats;
  using Ints = typename Unit::Types::Ints;
  const Floats old_max = vector_at<Unit>(tiles.row_max + column);
  Floats new_max = old_max;
  const Ints visible = *reinterpret_cast<const Ints*>(tiles.visible + column);
  for (int key = 0; key < kKeysPerTile; ++key) {
    Floats& score = vector_at<Unit>(tiles.scores[key] + column);
    score *= scale_log2;
    if (masked) score = Ints{} + key < visible ? score : Floats{} + kMinusInfinity;
    new_max = score > new_max ? score : new_max;
  }
  // All masked so far: subtracting 0 leaves -inf, a weight of 0, where -inf - (-inf) would be NaN.
  const Floats subtracted = new_max == kMinusInfinity ? Floats{} : new_max;
  Floats correction = old_max - subtracted;
  exp2_of<Unit>(correction);

  Floats row_sum = vector_at<Unit>(tiles.row_sum + column) * correction;
  for (int key = 0; key < kKeysPerTile; ++key) {
    Floats& score = vector_at<Unit>(tiles.scores[key] + column);
    score -= subtracted;
    exp2_of<Unit>(score);
    row_sum += score;
  }
  vector_at<Unit>(tiles.row_max + column) = new_max;
  vector_at<Unit>(tiles.row_sum + column) = row_sum;
  vector_at<Unit>(tiles.correction + column) = correction;
}

/// Processes a tile of keys: both products, and the softmax between them.
template <typename Unit, int kHeadDim>
[[gnu::always_inline]] inline void attend_to_tile(TransposedTiles<kHeadDim>& tiles,
                                                  const float* k,  // [kKeysPerTile, kHeadDim]
                                                  const float* v,  // [kKeysPerTile, kHeadDim]
                                                  bool masked, float scale_log2) {
  multiply_transposed<Unit, kKeysPerTile, kHeadDim, false>(k, kHeadDim, 1, &tiles.q[0][0], tiles.correction,
                                                           &tiles.scores[0][0]);
  for (int column = 0; column < kQueriesPerTask; column += Unit::kLanes)
    softmax_columns<Unit>(tiles, column, masked, scale_log2);
  multiply_transposed<Unit, kHeadDim, kKeysPerTile, true>(v, 1, kHeadDim, &tiles.scores[0][0],
                                                          tiles.correction, &tiles.o[0][0]);
}

//| ## All tiles
//|
//| The tasks and their order are the same as in step 4. Q is transposed when it is loaded and O when it is
//| written, once for all keys.

/// Attention, one tile of queries per task. Writes every row of O and of the log-sum-exp.
template <typename T, int kHeadDim>
void attention_in_registers(const Spec& spec,
                            const T* q,  // [batch, heads, seqlen_q, kHeadDim]
                            const T* k,  // [batch, kv_heads, seqlen_k, kHeadDim]
                            const T* v,  // [batch, kv_heads, seqlen_k, kHeadDim]
                            T* o,        // [batch, heads, seqlen_q, kHeadDim]
                            float* lse)  // [batch, heads, seqlen_q]
{
  const int q_tiles = ceil_div(spec.seqlen_q, kQueriesPerTask);
  const int heads_per_kv_head = spec.heads / spec.kv_heads;
  const float scale_log2 = spec.scale * std::numbers::log2e_v<float>;

  parallel_for(int64_t(spec.batch) * spec.heads * q_tiles, [&](int64_t task) {
    // Under a causal mask, the last queries see the most keys. They are processed first, so that no core
    // starts one of them at the end.
    const int64_t head = task / q_tiles;
    const int64_t kv_head = head / heads_per_kv_head;
    const int first_query = int(q_tiles - 1 - task % q_tiles) * kQueriesPerTask;
    const int queries = std::min(kQueriesPerTask, spec.seqlen_q - first_query);
    const int64_t first_row = head * spec.seqlen_q + first_query;

    const auto tiles = std::make_unique<TransposedTiles<kHeadDim>>();  // zeros: an empty O and empty sums
    std::fill_n(tiles->row_max, kQueriesPerTask, kMinusInfinity);
    load_transposed_tile(q + first_row * kHeadDim, queries, tiles->q);

    const int visible_keys = spec.visible_keys(first_query + queries - 1);  // the last query sees the most
    for (int first_key = 0; first_key < visible_keys; first_key += kKeysPerTile) {
      const int keys = std::min(kKeysPerTile, spec.seqlen_k - first_key);
      const int64_t kv_offset = (kv_head * spec.seqlen_k + first_key) * kHeadDim;
      for (int row = 0; row < kQueriesPerTask; ++row)  // rows beyond the last query see the same keys
        tiles->visible[row] = std::clamp(
            spec.visible_keys(first_query + std::min(row, queries - 1)) - first_key, 0, kKeysPerTile);
      const bool masked = tiles->visible[0] < kKeysPerTile;  // the first query sees the fewest

      with_widest_vectors([&]<typename Unit>() __attribute__((always_inline)) {
        attend_to_tile<Unit>(*tiles, as_floats(k + kv_offset, keys, tiles->k),
                             as_floats(v + kv_offset, keys, tiles->v), masked, scale_log2);
      });
    }

    for (int row = 0; row < queries; ++row) {
      const float row_sum = tiles->row_sum[row];
      const float inverse = row_sum == 0 ? 0 : 1 / row_sum;  // no key was seen: O is 0, not 0 / 0
      for (int d = 0; d < kHeadDim; ++d)
        o[(first_row + row) * kHeadDim + d] = from_float<T>(tiles->o[d][row] * inverse);
      // Back to base e; an empty row has -inf + log2(0), which is -inf as it should be.
      lse[first_row + row] = (tiles->row_max[row] + std::log2(row_sum)) * std::numbers::ln2_v<float>;
    }
  });
}

}  // namespace flashbook

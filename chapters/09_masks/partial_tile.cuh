//| # The mask of a partial tile
//|
//| A thread has two rows of a tile, and queries the policy once for each. The answer is a small value that
//| determines which keys the row sees. A thread has two neighbouring columns of every 8, which makes 32 per
//| row in a tile of 128, and builds a word with one bit for each.
//|
//| It builds the words while the tensor cores compute the scores. Then only two instructions are left per
//| score: test a bit, and select.
//|
//| Ranges of keys yield their word directly (`step3_ranges.cuh`). Rows that read memory are checked in a
//| loop, column by column. Unrolled, 64 loads would occupy 64 registers, and at d = 64 and d = 256 none are
//| free.
//|
//| ![Four masks in tiles: most tiles are skipped, some are full, and those where a mask cuts are
//| partial](../../docs/figures/mask_tiles.svg)
#pragma once
#include "chapters/09_masks/problem.cuh"
#include "common/features/dropout/dropout.h"
#include "common/hopper/softmax.h"

namespace flashbook::masks {

/// Column `i` of those that a thread has of a tile.
__host__ __device__ constexpr int column_of(int i) { return i / 2 * 8 + i % 2; }

//| A concept tests whether a row can build its word directly. The test could be a `requires` expression in
//| the consumer on its own members. But if such an expression calls a member function without `this->`, nvcc
//| 13.0 evaluates it to false and g++ to true (see the chapter's appendix).
/// A row that can build one word for all of a thread's columns.
template <typename Row, int kColumns>
concept HasWord = requires(const Row& row) {
  row.template columns<kColumns>(0);
};

/// Bit i: whether the row sees the thread's column i. `thread_key` is its first.
template <int kColumns, typename Row>
__device__ __forceinline__ uint32_t columns_seen(const Row& row, int thread_key) {
  if constexpr (HasWord<Row, kColumns>) {
    return row.template columns<kColumns>(thread_key);
  } else {
    uint32_t bits = 0;
#pragma unroll 2
    for (int i = 0; i < kColumns; ++i) bits |= uint32_t(row.sees(thread_key + column_of(i))) << i;
    return bits;
  }
}

//| FlashMask (step 4) stores for each *key* which queries it hides. So a warp splits this work by key: each
//| lane takes two neighbouring keys out of 64 and produces 16 bits for each, one per row of the warp. Two
//| keys fill a word. That is 4 loads of 16 bytes per lane and tile, where checking pair by pair took 64.
/// A thread's answers for a partial tile of kKeys keys, before it has the scores.
template <int kKeys>
struct Answers {
  uint32_t seen[2];  ///< columns_seen of the thread's row r
  /// Bit r of word i: whether key 64 i + 2 lane hides the warp's row r; bit 16 + r: whether the next key
  /// does.
  uint32_t hidden[kKeys / 64];
};

/// Reads the keys' intervals, `hidden` [kKeys]; `first_row` is the warp's first query.
template <int kKeys, typename Hidden>
__device__ __forceinline__ void ask_keys(Answers<kKeys>& answers, const Hidden* hidden, int first_row) {
#pragma unroll
  for (int i = 0; i < kKeys / 64; ++i) {
    const Hidden* const pair = hidden + 64 * i + 2 * int(threadIdx.x % 32);
    answers.hidden[i] = pair[0].hidden_rows(first_row) | pair[1].hidden_rows(first_row) << kRowsPerWarp;
  }
}

//| A thread's scores alternate between its rows: float i is column i / 4 * 2 + i % 2 of row i / 2 %
//| 2.
/// Scores of keys that a row does not see become -inf.
template <int kFloats>
__device__ __forceinline__ void hide(float (&scores)[kFloats], const Answers<2 * kFloats>& answers) {
#pragma unroll
  for (int i = 0; i < kFloats; ++i)
    if ((answers.seen[row_of(i)] >> (i / 4 * 2 + i % 2) & 1) == 0) scores[i] = -INFINITY;
}

//| A lane gets the word for its scores' two keys by a shuffle. It needs four bits of the word: two keys, two
//| rows. After a shift by the lane's row, they are at the same four positions in all lanes.
/// Scores of keys that hide a row become -inf. All lanes of a warp.
template <int kFloats>
__device__ __forceinline__ void hide_by_key(float (&scores)[kFloats], const Answers<2 * kFloats>& answers) {
  const int lane = int(threadIdx.x % 32);
#pragma unroll
  for (int j = 0; j < kFloats / 4; ++j) {  // the thread has two of every 8 columns
    const uint32_t bits = __shfl_sync(kWholeWarp, answers.hidden[j / 8], j % 8 * 4 + lane % 4) >> lane / 4;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (bits >> (i % 2 * kRowsPerWarp + i / 2 * 8) & 1) scores[4 * j + i] = -INFINITY;
  }
}

//| A function on scores counts keys from the thread's first column, and is applied to one row after the
//| other. If it reads memory for each score, the compiler would issue all loads first, each into its own
//| register. The compiler moves no load across a `__syncwarp`, so one after every eight scores keeps at most
//| eight loads in flight.
/// Scores become what the function makes of them. `row_of(r)` is the function for the thread's row r.
template <int kFloats, typename RowOf>
__device__ __forceinline__ void change(float (&scores)[kFloats], const RowOf& row_of, int first_key) {
  const int thread_key = first_key + 2 * int(threadIdx.x % 4);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const auto row_function = row_of(r).from(thread_key);
#pragma unroll
    for (int i = 0; i < kFloats / 2; ++i) {
      float& score = scores[i / 2 * 4 + 2 * r + i % 2];
      score = row_function(score, column_of(i));
      if constexpr (decltype(row_function)::kReadsMemory)
        if (i % 8 == 7) __syncwarp();  // limits loads in flight; prevents no hazard
    }
  }
}

//| Dropout draws its bits for 32 columns of a row at a time. This thread has eight of them, and one call
//| provides the random bits for all eight.
/// Sets the probabilities that dropout leaves out to 0. `query_of(r)` is the query of the thread's row r.
template <int kFloats, typename QueryOf>
__device__ __forceinline__ void apply_dropout(float (&probabilities)[kFloats], const Dropout& dropout,
                                              const Head& head, const QueryOf& query_of, int first_key) {
  constexpr int kBlockFloats = Dropout::kKeysPerDraw / 2;  // floats of both rows
#pragma unroll
  for (int block = 0; block < kFloats / kBlockFloats; ++block)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const PhiloxWords bits = dropout.bits(head.batch, head.head, query_of(r),
                                            first_key + block * Dropout::kKeysPerDraw, int(threadIdx.x % 4));
#pragma unroll
      for (int i = 0; i < 8; ++i)
        if (!dropout.keeps(bits.word[i / 2], i % 2))
          probabilities[block * kBlockFloats + i / 2 * 4 + 2 * r + i % 2] = 0.0f;
    }
}

}  // namespace flashbook::masks

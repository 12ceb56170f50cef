#include "chapters/07_backward/exercises/row_delta.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

using Type = __nv_bfloat16;

/// Tests rows of O that are padded by `gap` elements, and rows of dO padded by twice as many.
void expect_delta(int heads, int seqlen, int head_dim, int gap) {
  const int rows = heads * seqlen, o_row = head_dim + gap, d_o_row = head_dim + 2 * gap;
  const int padded = ceil_div(seqlen, 32) * 32;
  const auto numbers = [&](int row, unsigned seed) {
    return rounded(DType::bf16, random_numbers(std::size_t(rows) * row, seed));
  };
  const std::vector<float> o = numbers(o_row, 1), d_o = numbers(d_o_row, 2), d_lse = random_numbers(rows, 3);
  const DeviceArray o_array(DType::bf16, o), d_o_array(DType::bf16, d_o), d_lse_array(DType::f32, d_lse),
      d_array(DType::f32, std::size_t(heads) * padded);
  run(backward::row_delta<Type>, dim3(unsigned(padded / backward::kDeltaRows), unsigned(heads)),
      dim3(backward::kDeltaThreads), 0, static_cast<const Type*>(o_array.as<Type>()),
      static_cast<const Type*>(d_o_array.as<Type>()), static_cast<const float*>(d_lse_array.as<float>()),
      d_array.as<float>(), seqlen, padded, head_dim, o_row, d_o_row);
  const std::vector<float> got = d_array.download();
  Comparison comparison;
  for (int head = 0; head < heads; ++head)
    for (int row = 0; row < padded; ++row) {
      const std::size_t at = std::size_t(head) * seqlen + row;
      double want = row < seqlen ? -d_lse[at] : 0, size = std::abs(want);
      for (int c = 0; row < seqlen && c < head_dim; ++c) {
        const double product = double(o[at * o_row + c]) * d_o[at * d_o_row + c];
        want += product;
        size += std::abs(product);
      }
      comparison.expect(got[std::size_t(head) * padded + row], want, 1e-6 * size,
                        [&] { return "D of head " + std::to_string(head) + ", row " + std::to_string(row); });
    }
  comparison.finish();
}

class Delta : public MachineTest {};

TEST_F(Delta, OfHeadDim128) { expect_delta(2, 64, 128, 0); }
TEST_F(Delta, OfFewerPiecesThanLanes) { expect_delta(1, 96, 64, 0); }
TEST_F(Delta, OfMorePiecesThanLanes) { expect_delta(1, 32, 256, 0); }
TEST_F(Delta, IsZeroBeyondTheLastRow) { expect_delta(2, 77, 128, 0); }
TEST_F(Delta, OfRowsThatLieApart) { expect_delta(2, 64, 128, 16); }

}  // namespace
}  // namespace flashbook::testing

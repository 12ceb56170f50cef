#include "chapters/07_backward/prepare.cuh"
#include "tests/exercises/hopper_kernel.h"

namespace flashbook::testing {
namespace {

constexpr int kTileOfWorkspace = 64;

/// What `prepare` wrote.
struct Prepared {
  std::vector<float> lse, d;
};

/// Between rows of O lie `gap` elements, between those of dO twice as many.
template <int kHeadDim>
void expect_prepared(int batch, int heads, int seqlen, int gap, bool check_d) {
  Shape shape{.batch = batch,
              .heads = heads,
              .kv_heads = heads,
              .seqlen_q = seqlen,
              .seqlen_k = seqlen,
              .head_dim = kHeadDim,
              .dtype = DType::bf16};
  const auto strides = [&](int64_t row) {
    return Strides{.batch = heads * seqlen * row, .head = seqlen * row, .row = row};
  };
  const int o_row = kHeadDim + gap, d_o_row = kHeadDim + 2 * gap;
  shape.layout.o = strides(o_row), shape.layout.d_o = strides(d_o_row);  // nvcc loses designators here
  const std::size_t all_rows = std::size_t(batch) * heads * seqlen;
  const std::vector<float> o = rounded(DType::bf16, random_numbers(all_rows * o_row, 1)),
                           d_o = rounded(DType::bf16, random_numbers(all_rows * d_o_row, 2)),
                           lse = random_numbers(all_rows, 3);
  const DeviceArray o_array(DType::bf16, o), d_o_array(DType::bf16, d_o), lse_array(DType::f32, lse);
  const backward::Problem problem = backward::problem_of(shape, kTileOfWorkspace);
  const int64_t rows = int64_t(batch) * heads * problem.padded_q;
  const DeviceArray lse_out(DType::f32, rows), d_out(DType::f32, rows);
  constexpr int kRows = backward::kPrepareThreads / (kHeadDim / 8);
  run(backward::prepare<__nv_bfloat16, kHeadDim, false>, dim3(unsigned((rows + kRows - 1) / kRows)),
      dim3(backward::kPrepareThreads), 0, o_array.as<__nv_bfloat16>(), d_o_array.as<__nv_bfloat16>(),
      lse_array.as<float>(), backward::Workspace{lse_out.as<float>(), d_out.as<float>(), nullptr}, rows,
      problem);
  const Prepared got{lse_out.download(), d_out.download()};
  Comparison comparison;
  for (int64_t at = 0; at < rows; ++at) {
    const int64_t head = at / problem.padded_q, row = at % problem.padded_q;
    const bool is_row = row < seqlen;
    const auto where = [&] { return "head " + std::to_string(head) + ", row " + std::to_string(row); };
    if (check_d) {
      double want = 0, size = 0;
      for (int c = 0; is_row && c < kHeadDim; ++c) {
        const double product =
            double(o[(head * seqlen + row) * o_row + c]) * d_o[(head * seqlen + row) * d_o_row + c];
        want += product;
        size += std::abs(product);
      }
      comparison.expect(got.d[at], want, 1e-6 * size, [&] { return "D of " + where(); });
    } else {
      const double want = is_row ? lse[head * seqlen + row] * 1.44269504 : INFINITY;
      comparison.expect(got.lse[at], want, 1e-5, [&] { return "the log-sum-exp of " + where(); });
    }
  }
  comparison.finish();
}

class Delta : public HopperTest {};

TEST_F(Delta, LogSumExpsAreAsBefore) { expect_prepared<64>(1, 2, 100, 0, false); }
TEST_F(Delta, OfWholeTiles) { expect_prepared<64>(1, 2, 128, 0, true); }
TEST_F(Delta, OfHeadDim128) { expect_prepared<128>(1, 1, 64, 0, true); }
TEST_F(Delta, OfHeadDim256) { expect_prepared<256>(1, 1, 64, 0, true); }
TEST_F(Delta, IsZeroBeyondTheLastRow) { expect_prepared<64>(1, 2, 77, 0, true); }
TEST_F(Delta, OfRowsThatLieApart) { expect_prepared<128>(1, 2, 64, 16, true); }

}  // namespace
}  // namespace flashbook::testing

// An operation other than a forward pass takes the same path through a program, which only needs its list of
// tensors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "common/app/call.h"
#include "common/app/expected.h"
#include "common/app/options.h"
#include "common/app/runner.h"
#include "common/app/whole_file.h"
#include "common/attention/error.h"
#include "common/attention/npy.h"
#include "tests/support/shapes.h"

namespace flashbook::testing {
namespace {

/// The rows of one head of a tensor with any strides.
struct Rows {
  float* first;
  int64_t stride;

  Rows(const Shape& shape, TensorId id, const void* tensor, int head)
      : first(const_cast<float*>(static_cast<const float*>(tensor)) + head * shape.strides(id).head),
        stride(shape.strides(id).row) {}
  float* operator[](int row) const { return first + row * stride; }
};

/// The gradient of one batch entry by definition, on the host, in float.
void gradient(const Shape& shape, const Tensors& t, device::Stream) {
  const int d = shape.head_dim;
  for (int head = 0; head < shape.heads; ++head) {
    const Rows q(shape, TensorId::q, t.q, head), k(shape, TensorId::k, t.k, head),
        v(shape, TensorId::v, t.v, head), o(shape, TensorId::o, t.o, head),
        d_o(shape, TensorId::d_o, t.d_o, head), dq(shape, TensorId::dq, t.dq, head),
        dk(shape, TensorId::dk, t.dk, head), dv(shape, TensorId::dv, t.dv, head);
    for (int j = 0; j < shape.seqlen_k; ++j) std::fill_n(dk[j], d, 0.0f), std::fill_n(dv[j], d, 0.0f);
    for (int i = 0; i < shape.seqlen_q; ++i) {
      std::fill_n(dq[i], d, 0.0f);
      float row_d = 0;
      for (int c = 0; c < d; ++c) row_d += d_o[i][c] * o[i][c];
      for (int j = 0; j < shape.visible_keys(i); ++j) {
        float score = 0, dp = 0;
        for (int c = 0; c < d; ++c) score += q[i][c] * k[j][c], dp += d_o[i][c] * v[j][c];
        const float p = std::exp(shape.scale * score - t.lse[head * shape.seqlen_q + i]);
        const float ds = shape.scale * p * (dp - row_d);
        for (int c = 0; c < d; ++c) {
          dv[j][c] += p * d_o[i][c];
          dq[i][c] += ds * k[j][c];
          dk[j][c] += ds * q[i][c];
        }
      }
    }
  }
}

/// The same without the last key's dV.
void gradient_without_last_value(const Shape& shape, const Tensors& t, device::Stream stream) {
  gradient(shape, t, stream);
  std::fill_n(Rows(shape, TensorId::dv, t.dv, 0)[shape.seqlen_k - 1], shape.head_dim, 0.0f);
}

template <void (*kRun)(const Shape&, const Tensors&, device::Stream)>
constexpr Step kStep = {.name = "by the book",
                        .idea = "The chain rule.",
                        .operation = Operation::backward,
                        .accepts = Features::every(),
                        .run = kRun};
constexpr DType kType = DType::f32;

template <void (*kRun)(const Shape&, const Tensors&, device::Stream)>
Chapter chapter_of() {
  return {.number = 90,
          .name = "90_gradient",
          .title = "A gradient",
          .runs_on = device::Place::host,
          .steps = std::span(&kStep<kRun>, 1),
          .dtypes = std::span(&kType, 1),
          .gpu_shape = {},
          .cpu_shape = {}};
}

Options options_of(Layout (*layout)(const Shape&)) {
  Options options;
  options.shape = make_shape(40, 40, 64, true, DType::f32, 2, 2);
  if (layout != nullptr) options.shape.layout = layout(options.shape);
  options.operation = Operation::backward;
  options.steps = {1};
  options.reps = 1;
  return options;
}

TEST(Backward, IsRunAndHeldAgainstItsOwnOracle) {
  const Report report = run(options_of(nullptr), chapter_of<gradient>(), nullptr).report;
  ASSERT_EQ(report.steps.size(), 1u);
  const StepReport& step = report.steps[0];
  ASSERT_EQ(step.oracle.size(), 3u);
  EXPECT_EQ(step.oracle[0].tensor, TensorId::dq);
  EXPECT_EQ(step.oracle[1].tensor, TensorId::dk);
  EXPECT_EQ(step.oracle[2].tensor, TensorId::dv);
  EXPECT_EQ(describe_failure(step.oracle, "the oracle"), "");
  EXPECT_EQ(step.flops, 2.5 * 4 * 64 * 2 * (40 * 40 / 2));
}

// A view is passed on with its strides, and its gaps stay untouched.
TEST(Backward, RunsInTheLayoutOfTheShape) {
  for (const auto layout : {layout_bshd, layout_packed_qkv})
    EXPECT_TRUE(run(options_of(layout), chapter_of<gradient>(), nullptr).report.ok());
}

TEST(Backward, WhatIsWrongIsNamed) {
  const Report report = run(options_of(nullptr), chapter_of<gradient_without_last_value>(), nullptr).report;
  EXPECT_FALSE(report.ok());
  const std::string failure = describe_failure(report.steps[0].oracle, "the oracle");
  EXPECT_EQ(failure.find("dV against the oracle: error "), 0u) << failure;
  EXPECT_NE(failure.find("head 0"), std::string::npos) << failure;
}

// O and the log-sum-exp come from one forward pass: either both are given, or both are computed.
TEST(Backward, FilesOfAForwardPassAreOptional) {
  const Shape shape = options_of(nullptr).shape;
  const Inputs inputs = make_inputs(Operation::backward, shape, InputKind::normal, 1);
  const std::filesystem::path folder = ::testing::TempDir();
  std::vector<std::string> words = {"90_gradient", "--causal", "--reps", "1"};
  for (const TensorSpec& tensor : tensors_of(Operation::backward))
    if (tensor.role == Role::input)
      write_whole_file(folder / (std::string(tensor.name) + ".npy"),
                       npy_bytes(dims_of(shape, tensor.id), inputs[tensor.id]));
  const auto give = [&](const std::string& name) {
    words.push_back("--" + name);
    words.push_back((folder / (name + ".npy")).string());
  };
  const Chapter chapter = chapter_of<gradient>();
  const auto parse = [&] {
    std::vector<const char*> argv;
    for (const std::string& word : words) argv.push_back(word.c_str());
    return *parse_command_line(int(argv.size()), argv.data(), chapter).options;
  };
  for (const char* name : {"q", "k", "v"}) give(name);
  EXPECT_THROW(parse(), InputError) << "without dO";
  give("do");
  EXPECT_TRUE(run(parse(), chapter, nullptr).report.ok());
  give("o");
  EXPECT_THROW(parse(), InputError) << "O without the log-sum-exp";
  give("lse");
  EXPECT_TRUE(run(parse(), chapter, nullptr).report.ok());
}

TEST(Call, DownloadsRowsAsItDoesTheWhole) {
  Shape shape = options_of(nullptr).shape;
  shape.batch = 2;
  shape.layout = layout_bshd(shape);
  const Inputs inputs = make_inputs(Operation::forward, shape, InputKind::normal, 1);
  const UploadedInputs uploaded(Operation::forward, shape, inputs, device::Place::host);
  // O is Q, and the log-sum-exp counts up.
  const Call call(Operation::forward, shape, uploaded, 0, [&](const Tensors& t) {
    std::memcpy(t.o, t.q, elements_spanned(shape, TensorId::o) * sizeof(float));
    for (int64_t row = 0; row < shape.q_rows(); ++row) t.lse[row] = float(row);
  });
  call.run();
  EXPECT_EQ(call.download().o, inputs.q);
  const std::vector<int64_t> rows = {0, 3, 79, 81, 159};
  const Outputs some = call.download(rows);
  for (int64_t row = 0; row < shape.q_rows(); ++row) {
    const bool wanted = std::ranges::count(rows, row) > 0;
    EXPECT_EQ(some.lse[row] == float(row), wanted) << row;
    EXPECT_EQ(some.o[row * 64] == inputs.q[row * 64], wanted) << row;
    EXPECT_EQ(std::isnan(some.o[row * 64 + 63]), !wanted) << row;
  }
}

}  // namespace
}  // namespace flashbook::testing

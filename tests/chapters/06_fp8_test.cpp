#include <bit>

#include "chapters/06_fp8/host/beside_steps.h"
#include "chapters/06_fp8/host/chapter.h"
#include "tests/chapters/forward.h"
#include "tests/chapters/layouts.h"

namespace flashbook::testing {

const Chapter& chapter_under_test = kFp8;
const Operation operation_under_test = Operation::forward;
const Chapter* const chapter_before = kFp8Before;

namespace {

using device::Buffer;
using device::Place;

Spec spec_with(Scaling scaling, int head_dim, bool causal) {
  Spec spec = make_spec(150, 270, head_dim, causal, DType::e4m3, 4, 2);
  spec.batch = 2, spec.e4m3.scaling = scaling;
  return spec;
}

std::vector<float> download_floats(const Buffer& buffer) {
  std::vector<float> values(buffer.bytes() / sizeof(float));
  buffer.download(std::as_writable_bytes(std::span(values)));
  return values;
}

/// Quantised inputs, and their attention.
struct Pipeline {
  Pipeline(const Spec& spec, DType from, const Inputs& inputs, bool incoherent)
      : spec(spec), quantised(Operation::forward, spec, Place::device) {
    Spec unquantised = spec;
    unquantised.dtype = from, unquantised.e4m3.mean_subtracted = false;
    const UploadedInputs uploaded(Operation::forward, unquantised, inputs, Place::device);
    const Tensors& given = uploaded.tensors();
    const auto values = [&](TensorId id) { return quantised.values(id).data(); };
    const auto scales = [&](TensorId id) { return static_cast<float*>(quantised.scales(id).data()); };
    const Buffer workspace(Place::device, quantise_workspace_bytes(spec));
    quantise_fp8(spec, from, given.q, given.k, given.v,
                 {.q = values(TensorId::q),
                  .k = values(TensorId::k),
                  .v = values(TensorId::v),
                  .q_scale = scales(TensorId::q),
                  .k_scale = scales(TensorId::k),
                  .v_scale = scales(TensorId::v),
                  .k_mean = static_cast<float*>(quantised.means(TensorId::k).data()),
                  .v_mean = static_cast<float*>(quantised.means(TensorId::v).data()),
                  .workspace = workspace.data()},
                 incoherent, 5, nullptr);
    device::synchronize();
  }

  std::vector<float> scales(TensorId id) const { return download_floats(quantised.scales(id)); }

  std::vector<float> means(TensorId id) const { return download_floats(quantised.means(id)); }

  /// Returns the index of a row's scale in a tensor.
  int64_t scale_of(TensorId id, int64_t row) const {
    return id == TensorId::q ? spec.q_scale_of(row) : spec.k_scale_of(row);
  }

  /// Returns the decoded values.
  Inputs decoded() const {
    Inputs inputs;
    for (TensorId id : {TensorId::q, TensorId::k, TensorId::v}) {
      std::vector<std::byte> bytes(quantised.values(id).bytes());
      quantised.values(id).download(bytes);
      const std::vector<float> scale = scales(id);
      inputs[id] = decode(DType::e4m3, bytes);
      for (std::size_t i = 0; i < inputs[id].size(); ++i)
        inputs[id][i] *= scale[scale_of(id, int64_t(i) / spec.head_dim)];
      if (!spec.e4m3.mean_subtracted || id == TensorId::q) continue;
      const std::vector<float> mean = means(id);
      for (std::size_t i = 0; i < inputs[id].size(); ++i)
        inputs[id][i] += mean[i / spec.head_dim / spec.seqlen_k * spec.head_dim + i % spec.head_dim];
    }
    return inputs;
  }

  Outputs attention(int step) const {
    const Call call(kFp8, spec, quantised, step);
    call.run();
    return call.download();
  }

  Spec spec;
  UploadedInputs quantised;
};

/// Returns 16-bit inputs like those in a model.
Inputs inputs_16(Spec spec, DType type, InputKind kind) {
  spec.dtype = type, spec.e4m3.mean_subtracted = false;
  return make_inputs(spec, kind, 21);
}

/// The simulator runs every other case: both choices with each head dimension and with each scaling.
bool left_out(Scaling scaling, int head_dim, bool choice) {
  return device::machine() != device::Machine::gpu &&
         (int(scaling) + std::bit_width(unsigned(head_dim)) + choice) % 2 != 0;
}

// The quantiser's scales differ and are not powers of two. Columns have means of various sizes, in K as large
// as in models, and if they are subtracted, outputs must be those of K and V with their means.
TEST_F(ChapterTest, TakesEveryScalingAndGivesMeansBack) {
  for (Scaling scaling : {Scaling::tensor, Scaling::head, Scaling::block})
    for (int head_dim : {64, 128, 256})
      for (bool mean_subtracted : {false, true}) {
        if (left_out(scaling, head_dim, mean_subtracted)) continue;
        Spec spec = spec_with(scaling, head_dim, (scaling == Scaling::tensor) != (head_dim == 64));
        spec.e4m3.mean_subtracted = mean_subtracted;
        Inputs inputs = inputs_16(spec, DType::bf16, InputKind::normal);
        // Every block of every tensor has a different magnitude.
        for (int64_t i = 0; i < spec.q_elements(); ++i)
          inputs.q[i] *= 1 + 0.5f * float(i / head_dim / 64 % 5);
        for (int64_t i = 0; i < spec.k_elements(); ++i) {
          const int64_t block = i / head_dim / 128,
                        column = i / head_dim / spec.seqlen_k * head_dim + i % head_dim;
          inputs.k[i] = inputs.k[i] * (1 + 0.5f * float(block % 3)) + float(column % 7) - 3;
          inputs.v[i] = inputs.v[i] * (1 + float((block + 1) % 3)) + float(column % 11) / 4 - 1;
        }
        const Pipeline pipeline(spec, DType::bf16, inputs, false);
        const Reference reference = make_reference(spec, pipeline.decoded(), all_rows(spec));
        for (int step = 1; step <= int(kFp8.steps.size()); ++step) {
          if (!kFp8.refusal(step, spec).empty()) continue;
          const CheckResult result = check(spec, reference, pipeline.attention(step));
          EXPECT_TRUE(result.o.ok) << describe(spec) << ", step " << step << ": " << result.o.worst;
          EXPECT_TRUE(result.lse.ok) << describe(spec) << ", step " << step << ": " << result.lse.worst;
        }
      }
}

// The bound of the log-sum-exp allows for sums of rounded P. Steps up to 5 sum before rounding and need no
// such allowance: on an H200, only the tensor cores' truncation of scores remains, and in the simulator
// almost nothing.
TEST_F(ChapterTest, UpToStep5TheLogSumExpIsThatOfExactSums) {
  const bool gpu = device::machine() == device::Machine::gpu;
  const Spec spec = spec_with(Scaling::tensor, 128, true);
  const Inputs inputs = make_inputs(spec, InputKind::normal, 6);
  const Reference reference = make_reference(spec, inputs, all_rows(spec));
  for (int step = 1; step <= int(kFp8.steps.size()); ++step) {
    const std::vector<float> got = run_once(kFp8, spec, inputs, step).lse;
    double worst = 0;
    for (std::size_t row = 0; row < got.size(); ++row)
      worst = std::max(worst, std::abs(got[row] - reference.lse[row]));
    EXPECT_LE(worst, step <= 5 ? (gpu ? 4e-3 : 1e-4) : 0.05) << "step " << step;
  }
}

/// The relative error of O, and the ratio of its mean to the true mean.
struct LongError {
  double relative, mean;
};

/// Returns the errors of a step with many keys. Scores are N(0, 1) times `sharpness`, values N(mean,
/// spread^2).
LongError error_of_long(int seqlen_k, bool mean_subtracted, int step, float sharpness, float mean,
                        float spread, int head_dim = 64, Scaling scaling = Scaling::tensor) {
  const ExactSums exact;
  Spec spec = make_spec(64, seqlen_k, head_dim, false, DType::e4m3);
  spec.e4m3.scaling = scaling;
  spec.e4m3.mean_subtracted = mean_subtracted;
  Spec unrounded = spec;
  unrounded.dtype = DType::f32, unrounded.e4m3.mean_subtracted = false;
  Inputs inputs = make_inputs(unrounded, InputKind::normal, 1);
  for (float& value : inputs.q) value *= sharpness;
  for (float& value : inputs.v) value = mean + spread * value;
  round_inputs(spec, inputs);
  const Reference reference = make_reference(spec, inputs, all_rows(spec));
  const std::vector<float> got = run_once(kFp8, spec, inputs, step).o;
  double square = 0, norm = 0, sum = 0, want_sum = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double want = reference.o[i];
    square += (got[i] - want) * (got[i] - want), norm += want * want;
    sum += got[i], want_sum += want;
  }
  return {std::sqrt(square / norm), sum / want_sum};
}

// The tensor cores truncate bits that do not fit a long sum. An H200 and the simulator lose the same: with
// 16k keys and values N(1, 1), 18.5 %, which leaves 0.815 of O.
TEST_F(ChapterTest, LongSumsOfOneSignLoseWhatAnH200Loses) {
  const LongError of_4k = error_of_long(4096, false, 5, 1, 1, 1),
                  of_16k = error_of_long(16384, false, 5, 1, 1, 1);
  EXPECT_NEAR(of_4k.relative, 0.0506, 0.002);
  EXPECT_NEAR(of_4k.mean, 0.950, 0.002);
  EXPECT_NEAR(of_16k.relative, 0.185, 0.004);
  EXPECT_NEAR(of_16k.mean, 0.815, 0.004);
}

// Step 9 promotes sums in time, whatever the length and the head dimension.
TEST_F(ChapterTest, PromotedSumsAreRightAtEveryLength) {
  struct Case {
    int seqlen_k, head_dim;
    Scaling scaling = Scaling::tensor;
  };
  std::vector<Case> cases = {{1100, 128}, {4096, 64, Scaling::block}, {2048, 256}, {8192, 64}};
  if (device::machine() == device::Machine::gpu)
    for (int head_dim : {64, 128, 256})
      for (Scaling scaling : {Scaling::tensor, Scaling::block})
        cases.push_back({65536, head_dim, scaling}), cases.push_back({131072, head_dim, scaling});
  for (const auto& [seqlen_k, head_dim, scaling] : cases) {
    const LongError of_ones = error_of_long(seqlen_k, false, 9, 1, 1, 0, head_dim, scaling),
                    of_halves = error_of_long(seqlen_k, false, 9, 1, 0.5f, 1, head_dim, scaling);
    SCOPED_TRACE(std::to_string(seqlen_k) + " keys, head_dim " + std::to_string(head_dim));
    EXPECT_LE(of_ones.relative, 0.01);
    EXPECT_LE(of_halves.relative, 0.02);
    EXPECT_NEAR(of_ones.mean, 1, 0.008);
  }
}

// Without their means, values have both signs, and the loss disappears. The simulator runs the last step; a
// GPU runs all steps.
TEST_F(ChapterTest, LongSumsOfCentredValuesAreRight) {
  struct Kind {
    const char* name;
    float sharpness, mean, spread;
  };
  const bool is_gpu = device::machine() == device::Machine::gpu;
  const int steps = int(kFp8.steps.size()), first = is_gpu ? 1 : steps, length = is_gpu ? 16384 : 8192;
  for (const Kind& kind :
       {Kind{"V is 1", 1, 1, 0}, {"V is N(1, 1)", 1, 1, 1}, {"P is nearly uniform", 0.03f, 0.25f, 1}})
    for (int step = first; step <= steps; ++step) {
      const double of_1k = error_of_long(1024, true, step, kind.sharpness, kind.mean, kind.spread).relative;
      const LongError of_long = error_of_long(length, true, step, kind.sharpness, kind.mean, kind.spread);
      EXPECT_LE(of_long.relative, 1.1 * of_1k + 1e-6) << kind.name << ", step " << step;
      EXPECT_LE(of_long.relative, 0.02) << kind.name << ", step " << step;
      EXPECT_NEAR(of_long.mean, 1, 0.002) << kind.name << ", step " << step;
    }
}

// Several tiles of queries per block, and the versions for long sequences.
TEST_F(ChapterTest, LongSequences) {
  for (int head_dim : {64, 128, 256})
    for (bool causal : {false, true}) {
      if (left_out(Scaling::tensor, head_dim, causal)) continue;
      Spec spec = spec_with(Scaling::tensor, head_dim, causal);
      spec.batch = 1, spec.heads = spec.kv_heads = 2;
      spec.seqlen_q = head_dim == 64 ? 1100 : 450, spec.seqlen_k = head_dim == 128 ? 2100 : 520;
      expect_right(spec, make_inputs(spec, InputKind::normal, 4));
    }
}

// Lengths at which steps 7 and 8 transpose V once for all blocks, and the tiles that they choose.
TEST_F(ChapterTest, LongSequencesThatTransposeOnce) {
  struct Case {
    int head_dim, seqlen_k;
    bool causal;
  };
  for (const Case& one : {Case{64, 1030, false},
                          {64, 4100, true},
                          {128, 1030, false},
                          {128, 2060, false},
                          {128, 4100, true},
                          {256, 1030, true},
                          {256, 4100, false}}) {
    Spec spec = spec_with(Scaling::tensor, one.head_dim, one.causal);
    spec.batch = one.seqlen_k < 2000 ? 2 : 1, spec.heads = 2, spec.kv_heads = 1;
    spec.seqlen_q = 70, spec.seqlen_k = one.seqlen_k;
    expect_right(spec, make_inputs(spec, InputKind::normal, 9), 7);
  }
}

// Rows that step 9 promotes, in each of its versions.
TEST_F(ChapterTest, LongSequencesWithPromotedSums) {
  struct Case {
    int head_dim, seqlen_k;
    bool causal;
    Scaling scaling = Scaling::tensor;
    int seqlen_q = 70;
  };
  for (const Case& one : {Case{64, 1030, false},
                          {64, 2060, true},
                          {64, 1700, true, Scaling::tensor, 1700},
                          {64, 4100, true, Scaling::head},
                          {64, 1600, false, Scaling::block},
                          {128, 1600, false},
                          {128, 1600, true, Scaling::block},
                          {128, 2060, false, Scaling::head},
                          {128, 2060, true},
                          {128, 4100, true},
                          {256, 1600, false},
                          {256, 2100, true, Scaling::head},
                          {256, 1600, false, Scaling::block}}) {
    Spec spec = spec_with(one.scaling, one.head_dim, one.causal);
    spec.batch = 1, spec.heads = 2, spec.kv_heads = 1;
    spec.seqlen_q = one.seqlen_q, spec.seqlen_k = one.seqlen_k;
    expect_right(spec, make_inputs(spec, InputKind::normal, 9), 9);
  }
}

// The kernel goes from the last key to the first. Here scores grow on the way, so maxima rise again and again
// after sums have been promoted, and the running sums have to be corrected.
TEST_F(ChapterTest, MaximaRiseAfterPromotion) {
  for (int head_dim : {64, 128, 256})
    for (Scaling scaling : {Scaling::tensor, Scaling::block}) {
      Spec spec = spec_with(scaling, head_dim, head_dim == 128);
      spec.batch = 1, spec.heads = spec.kv_heads = 1;
      spec.seqlen_q = 64, spec.seqlen_k = 2500;
      Spec unrounded = spec;
      unrounded.dtype = DType::f32, unrounded.e4m3.scaling = Scaling::tensor;
      Inputs inputs = make_inputs(unrounded, InputKind::normal, 9);
      for (int64_t i = 0; i < spec.k_elements(); ++i)
        inputs.k[i] *= 4 - 3.5f * float(i / head_dim % spec.seqlen_k) / float(spec.seqlen_k);
      round_inputs(spec, inputs);
      expect_right(spec, inputs, 9);
    }
}

// These sequences have fewer scaled tiles of queries than a block has consumers.
using TracedBlockScales = ChapterTest;
TEST_F(TracedBlockScales, OfShortSequencesAreReadWithinTheirBounds) {
  Spec spec = spec_with(Scaling::block, 64, false);
  spec.seqlen_q = 30, spec.seqlen_k = 40;
  const Inputs inputs = make_inputs(spec, InputKind::normal, 8);
  for (int step : {3, 4}) {
    const Outputs outputs = run_once(kFp8, spec, inputs, step);
    EXPECT_TRUE(check(spec, make_reference(spec, inputs, all_rows(spec)), outputs).ok());
  }
}

using TracedPromotedSums = ChapterTest;
TEST_F(TracedPromotedSums, AreReadByTheThreadsThatWroteThem) {
  for (Scaling scaling : {Scaling::tensor, Scaling::block}) {
    Spec spec = spec_with(scaling, 64, true);
    spec.batch = 1, spec.heads = spec.kv_heads = 1, spec.seqlen_q = 30, spec.seqlen_k = 1100;
    const Inputs inputs = make_inputs(spec, InputKind::normal, 8);
    const Outputs outputs = run_once(kFp8, spec, inputs, kFp8.place("promoted_sums"));
    EXPECT_TRUE(check(spec, make_reference(spec, inputs, all_rows(spec)), outputs).ok());
  }
}

// The product of two small scales underflows in float32, so the scores are 0.
TEST_F(ChapterTest, SmallScalesHideNoKeysAndMakeNoNaN) {
  for (Scaling scaling : {Scaling::tensor, Scaling::head, Scaling::block})
    for (bool causal : {false, true}) {
      const Spec spec = spec_with(scaling, 64, causal);
      SCOPED_TRACE(describe(spec));
      Inputs inputs = inputs_16(spec, DType::bf16, InputKind::normal);
      for (auto* tensor : {&inputs.q, &inputs.k})
        for (float& value : *tensor) value *= 0x1p-100f;
      const Outputs outputs = Pipeline(spec, DType::bf16, inputs, false).attention(3);
      const Outputs outputs_fast =
          scaling == Scaling::block ? outputs : Pipeline(spec, DType::bf16, inputs, false).attention(5);
      for (int64_t row = 0; row < spec.q_rows(); ++row) {
        const float want = std::log(float(spec.visible_keys(int(row % spec.seqlen_q))));
        ASSERT_NEAR(outputs.lse[row], want, 1e-4f) << row;
        ASSERT_NEAR(outputs_fast.lse[row], want, 1e-4f) << row;
      }
      for (const Outputs* of : {&outputs, &outputs_fast})
        ASSERT_TRUE(std::ranges::all_of(of->o, [](float value) { return std::isfinite(value); }));
    }
}

// A block of zeros in V must not cost its neighbours' P any of e4m3's range: with a scale of 1 it cost seven
// powers of two. The zeros come last, since the last block is multiplied first. Every tenth of the other keys
// has a large weight, and the rest e^-9 of that.
TEST_F(ChapterTest, ZerosInVTakeNoRangeFromTheirNeighbours) {
  Spec spec = spec_with(Scaling::block, 64, false);
  spec.seqlen_k = 256, spec.scale = 1;
  Inputs inputs = inputs_16(spec, DType::bf16, InputKind::normal);
  const auto key_of = [&](std::size_t i) { return int(i) / spec.head_dim % spec.seqlen_k; };
  std::ranges::fill(inputs.q, 0.0f);
  for (std::size_t i = 0; i < inputs.q.size(); i += spec.head_dim) inputs.q[i] = 1;
  std::ranges::fill(inputs.k, 0.0f);
  for (std::size_t i = 0; i < inputs.k.size(); i += spec.head_dim)
    inputs.k[i] = key_of(i) >= 128 || key_of(i) % 10 == 0 ? 0.0f : -9.0f;
  for (std::size_t i = 0; i < inputs.v.size(); ++i)
    inputs.v[i] = key_of(i) >= 128 || key_of(i) % 10 == 0 ? 0.0f : 1.0f;
  const Outputs outputs = Pipeline(spec, DType::bf16, inputs, false).attention(3);
  // 128 zero keys and 13 others with weight 1, and 115 with weight e^-9 and value 1.
  const float want = 115 * std::exp(-9.0f) / (141 + 115 * std::exp(-9.0f));
  for (float value : outputs.o) ASSERT_NEAR(value, want, want / 8);
}

// Values and encodings follow the problem's strides, and nothing is written between them.
TEST_F(ChapterTest, QuantisesTensorsWhereTheyLie) {
  for (Scaling scaling : {Scaling::head, Scaling::block}) {
    Spec spec = spec_with(scaling, 128, false);
    spec.seqlen_k = spec.seqlen_q;
    const Inputs inputs = inputs_16(spec, DType::bf16, InputKind::normal);
    const auto bytes_of = [](const Buffer& buffer) {
      std::vector<std::byte> bytes(buffer.bytes());
      buffer.download(bytes);
      return bytes;
    };
    const Pipeline dense(spec, DType::bf16, inputs, true);
    for (const Layout& layout : {layout_bshd(spec), layout_packed_qkv(spec), layout_with_gaps(spec)}) {
      spec.layout = layout;
      const Pipeline strided(spec, DType::bf16, inputs, true);
      for (TensorId id : {TensorId::q, TensorId::k, TensorId::v}) {
        std::vector<std::byte> want(elements_spanned(spec, id), std::byte(0xff));
        scatter(spec, id, bytes_of(dense.quantised.values(id)), want, 1);
        EXPECT_TRUE(bytes_of(strided.quantised.values(id)) == want);
        EXPECT_TRUE(strided.scales(id) == dense.scales(id));
      }
    }
  }
}

TEST_F(ChapterTest, EveryLaunchGivesTheSameBits) { expect_same_bits(DType::e4m3); }

}  // namespace
}  // namespace flashbook::testing

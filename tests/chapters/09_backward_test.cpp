// Chapter 9's steps 6 and 7, the gradient under every visibility.
#include "chapters/09_masks/host/chapter.h"
#include "tests/chapters/layouts.h"
#include "tests/chapters/padded.h"
#include "tests/support/masks.h"

namespace flashbook::testing {

const Chapter& chapter_under_test = kMasks;
const Operation operation_under_test = Operation::backward;
const Chapter* const chapter_before = nullptr;
const char* const first_padded_slug = "backward";

namespace {

constexpr Slug kGradient{kMasks, "backward"}, kInTurns{kMasks, "deterministic"};

/// Returns a problem whose documents begin at these queries and keys, with a window.
Spec packed_spec(std::vector<int> queries, std::vector<int> keys, int head_dim,
                 Window window = {.right = 0}) {
  const int last_query = queries.back(), last_key = keys.back();
  return masked_spec(last_query, last_key,
                     {.window = window, .documents = {std::move(queries), std::move(keys)}}, head_dim);
}

/// Runs step 6 with the gradient of the problem's bias, [heads, 2 * reach + 1]. The other gradients are
/// `outputs`.
std::vector<float> bias_gradient(const Spec& spec, const Inputs& inputs, Outputs& outputs) {
  const Step& step = kMasks.step(kGradient);
  const UploadedInputs uploaded(Operation::backward, spec, inputs, kMasks.runs_on);
  std::vector<float> gradient(spec.score.bias.values.size());
  const device::Buffer buffer(kMasks.runs_on, gradient.size() * sizeof(float));  // poisoned
  const Call call(Operation::backward, spec, uploaded, step.workspace_bytes(spec), [&](Tensors tensors) {
    tensors.d_bias = static_cast<float*>(buffer.data());
    step.run(spec, tensors, nullptr);
  });
  call.run();
  outputs = call.download();
  buffer.download(std::as_writable_bytes(std::span(gradient)));
  return gradient;
}

/// Checks the bias's gradient from step 6, and the other gradients.
void expect_right_bias(const Spec& spec, const Inputs& inputs) {
  SCOPED_TRACE(describe(spec));
  Outputs outputs;
  const std::vector<float> gradient = bias_gradient(spec, inputs, outputs);
  const BiasReference expected = make_bias_reference(spec, inputs);
  const int distances = 2 * spec.score.bias.reach + 1;
  for (int i = 0; i < int(gradient.size()); ++i)
    ASSERT_TRUE(std::abs(gradient[i] - expected.values[i]) <= expected.bound[i])
        << "head " << i / distances << ", distance " << i % distances - spec.score.bias.reach << ": "
        << gradient[i] << ", and it is " << expected.values[i] << ", give or take " << expected.bound[i];
  EXPECT_EQ(describe_failure(Expected(Operation::backward, spec, inputs, all_rows(spec)).judge(outputs),
                             "the oracle"),
            "");
}

void expect_right(const Spec& spec) {
  Inputs inputs = inputs_of(spec, InputKind::normal, 7);
  add_lse_gradient(spec, inputs);
  testing::expect_right(spec, inputs);
  if (!spec.score.bias.values.empty()) expect_right_bias(spec, inputs);
}

/// Returns every visibility, with small shapes. Head dimensions and types alternate.
std::vector<Spec> masks() {
  std::vector<Spec> specs = {
      // windows: at tiles' edges, with sinks, wider than the sequence, unlimited on one side
      masked_spec(200, 200, {.window = {.left = 0, .right = 0}}, 128),
      masked_spec(330, 300, {.window = {.left = 127, .right = 0}}, 64),
      masked_spec(200, 331, {.window = {.left = 64, .right = 63}}, 256),
      masked_spec(300, 300, {.window = {.left = 50, .right = 0, .sinks = 5}}, 64),
      masked_spec(130, 300, {.window = {.left = 37}}, 128),
      masked_spec(200, 300, {.window = {.right = 0}, .prefix = 130}, 64),
      // packed sequences: empty first, in the middle and last; of one token; about a tile long; uneven
      packed_spec({0, 0, 1, 128, 128, 256, 257}, {0, 0, 1, 128, 128, 256, 257}, 64),
      packed_spec({0, 65, 66, 66, 130}, {0, 65, 66, 66, 130}, 128, {}),
      // dQ not summed: a tile of queries that sees no key; next to a long sequence, whose dQ is summed
      packed_spec({0, 200, 230}, {0, 100, 130}, 128),
      packed_spec({0, 300, 310, 320}, {0, 300, 310, 320}, 64),
      packed_spec({0, 0, 20, 150, 151, 151}, {0, 40, 40, 130, 300, 310}, 256),
      packed_spec({0, 129, 256}, {0, 129, 256}, 128, {.left = 40, .right = 3}),
      with_columns(masked_spec(150, 260, {.window = {.left = 70, .right = 0}}, 64)),
      with_dense_mask(masked_spec(100, 150, {.window = {.left = 40, .right = 0}}, 128)),
  };
  // documents of a batch are a mask, and a tile holds rows of two
  Spec batch = packed_spec({0, 1, 100, 100, 150}, {0, 30, 31, 140, 200}, 64, {.left = 60, .right = 0});
  batch.batch = 2;
  specs.push_back(batch);
  Spec columns = masked_spec(150, 200, {}, 128);
  columns.visibility.columns = {.heads = 2, .bounds = 2};
  for (int i = 0; i < 400; ++i) {
    columns.visibility.columns.queries.push_back(100 + i % 51);
    columns.visibility.columns.queries.push_back(i % 90);
  }
  specs.push_back(columns);
  columns.visibility.documents = {{0, 70, 150}, {0, 100, 200}};
  columns.set_head_dim(256), columns.scale = default_scale(256);
  specs.push_back(columns);
  Spec blocks = masked_spec(300, 260, Visibility::causal(), 256);
  blocks.visibility.blocks = {.queries = 64, .keys = 50, .first = {0}};
  for (int row = 0; row * 64 < 300; ++row) {
    for (int block = row % 3; block * 50 < 260; block += 2)
      blocks.visibility.blocks.key_blocks.push_back(block);
    blocks.visibility.blocks.first.push_back(int(blocks.visibility.blocks.key_blocks.size()));
  }
  specs.push_back(blocks);
  // functions on scores, under a mask that leaves full tiles and partial ones
  for (const auto& [score, head_dim] : {std::pair(ScoreFunction{.softcap = 2}, 64),
                                        {{.softcap = 30}, 128},
                                        {{.softcap = 1.5f}, 256},
                                        {{.alibi = {0.5f, 0.25f, 0.0625f, 1}}, 128},
                                        {{.alibi = {0.5f, 0.25f, 0.0625f, 1}}, 256},
                                        {{.softcap = 2, .alibi = {0.5f, 0.25f, 0.0625f, 1}}, 64},
                                        {{.softcap = 9, .alibi = {0.5f, 0.25f, 0.0625f, 1}}, 128},
                                        {{.softcap = 30, .alibi = {0.5f, 0.25f, 0.0625f, 1}}, 256}}) {
    Spec scored = head_dim == 128 ? packed_spec({0, 60, 60, 200}, {0, 60, 60, 200}, head_dim)
                                  : masked_spec(200, 170, Visibility::causal(), head_dim);
    scored.score = score;
    specs.push_back(scored);
  }
  Spec documents = batch;  // ALiBi within documents that are a mask
  documents.score.alibi = {0.5f, 0.25f, 0.0625f, 1};
  specs.push_back(documents);
  // slopes of each sequence: of documents that are a mask, of packed ones (some empty, some within one tile),
  // of batch entries
  documents.score.alibi = slopes_by_sequence(documents);
  specs.push_back(documents);
  Spec by_sequence = packed_spec({0, 60, 60, 200, 201}, {0, 60, 60, 200, 201}, 64);
  by_sequence.score.alibi = slopes_by_sequence(by_sequence);
  specs.push_back(by_sequence);
  by_sequence = masked_spec(140, 170, Visibility::causal(), 128);
  by_sequence.batch = 3;
  by_sequence.score = {.softcap = 3, .alibi = slopes_by_sequence(by_sequence)};
  specs.push_back(by_sequence);
  // head dimensions that tiles pad
  specs.push_back(packed_spec({0, 65, 66, 66, 130}, {0, 65, 66, 66, 130}, 80));
  specs.push_back(packed_spec({0, 0, 20, 150, 151, 151}, {0, 40, 40, 130, 300, 310}, 192));
  Spec capped = masked_spec(130, 170, {.window = {.left = 60, .right = 0}}, 40);
  capped.score.softcap = 2;
  specs.push_back(capped);
  for (std::size_t i = 0; i < specs.size(); i += 2) specs[i].dtype = DType::f16;
  return specs;
}

/// Returns problems with dropout, every other one with slopes too, under masks with full and partial tiles.
/// Head dimensions and types alternate.
std::vector<Spec> dropped() {
  std::vector<Spec> specs = {
      masked_spec(200, 170, Visibility::causal(), 64), masked_spec(333, 300, {}, 128),
      masked_spec(170, 331, {.window = {.left = 64, .right = 63}}, 256),
      masked_spec(150, 300, {.window = {.left = 37, .right = 0, .sinks = 3}, .prefix = 130}, 128),
      masked_spec(1, 290, {}, 64), masked_spec(130, 1, {}, 128),
      // documents that begin at keys that are not multiples of 32
      packed_spec({0, 0, 61, 61, 200, 201}, {0, 3, 60, 77, 200, 201}, 64),
      packed_spec({0, 129, 256}, {0, 129, 256}, 128, {.left = 40, .right = 3}),
      with_columns(masked_spec(150, 260, {.window = {.left = 70, .right = 0}}, 64)),
      masked_spec(130, 170, Visibility::causal(), 80),  // padded by tiles
  };
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].visibility.documents.first_query.empty()) specs[i].batch = 1 + int(i % 2);
    if (i % 3 == 0) specs[i].heads = 3, specs[i].kv_heads = 1;
    if (i % 2 == 0) specs[i].dtype = DType::f16;
    specs[i].score = {.dropout = i % 4 == 1 ? 0.75f : 0.2f, .seed = 0x900000001 + i};
    if (i % 2 == 1)
      for (int head = 0; head < specs[i].heads; ++head)
        specs[i].score.alibi.push_back(0.5f / float(1 << head));
  }
  return specs;
}

/// Returns a distance bias under masks with full and partial tiles, with a reach of zero, within a tile, of a
/// few tiles, and beyond the sequence. Head dimensions and types alternate.
std::vector<Spec> biased() {
  // documents of a batch are a mask, and a tile holds keys of two
  Spec documents = packed_spec({0, 1, 100, 100, 150}, {0, 30, 31, 140, 200}, 64, {.left = 60, .right = 0});
  documents.batch = 2;
  std::vector<Spec> specs = {
      masked_spec(200, 170, Visibility::causal(), 64),
      masked_spec(333, 300, {}, 128),
      masked_spec(170, 331, {.window = {.left = 64, .right = 63}}, 256),
      masked_spec(150, 300, {.window = {.left = 37, .right = 0, .sinks = 3}, .prefix = 130}, 128),
      masked_spec(1, 290, {}, 64),
      masked_spec(130, 1, {}, 128),
      documents,
      packed_spec({0, 0, 20, 150, 151, 151}, {0, 40, 40, 130, 300, 310}, 256),
      packed_spec({0, 65, 66, 66, 330}, {0, 65, 66, 66, 330}, 128, {}),
      masked_spec(130, 170, Visibility::causal(), 80),  // padded by tiles
      with_columns(masked_spec(150, 260, {.window = {.left = 70, .right = 0}}, 64)),
  };
  std::mt19937 random(3);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].visibility.documents.first_query.empty()) specs[i].batch = 1 + int(i % 2);
    if (i % 3 == 0) specs[i].heads = 3, specs[i].kv_heads = 1;
    if (i % 2 == 0) specs[i].dtype = DType::f16;
    constexpr int kReaches[] = {9, 1000, 70, 0, 128};
    specs[i].score.bias = random_bias(random, specs[i].heads, kReaches[i % std::size(kReaches)]);
  }
  return specs;
}

/// Returns problems whose values are narrower than keys, with masks that have tiles of 192 and 128 columns.
std::vector<Spec> with_wide_keys() {
  std::vector<Spec> specs = {
      masked_spec(200, 331, {}, 192),
      masked_spec(140, 300, Visibility::causal(), 192),
      masked_spec(300, 70, Visibility::causal(), 192),  // the first queries see no key
      masked_spec(300, 300, {.window = {.left = 50, .right = 0, .sinks = 5}}, 136),
      masked_spec(200, 300, {.window = {.right = 0}, .prefix = 130}, 192),
      packed_spec({0, 0, 1, 128, 128, 256, 257}, {0, 0, 1, 128, 128, 256, 257}, 192),
      packed_spec({0, 0, 20, 150, 151, 151}, {0, 40, 40, 130, 300, 310}, 184),
      packed_spec({0, 65, 66, 66, 130}, {0, 65, 66, 66, 130}, 192, {}),
      packed_spec({0, 1, 141, 268, 268, 397}, {0, 1, 141, 268, 268, 397}, 160, {.left = 150, .right = 0}),
      with_columns(masked_spec(150, 260, {.window = {.left = 70, .right = 0}}, 192)),
  };
  specs[0].batch = 2;
  Spec batch = packed_spec({0, 1, 100, 100, 150}, {0, 30, 31, 140, 200}, 192, {.left = 60, .right = 0});
  batch.batch = 2;
  specs.push_back(batch);
  constexpr int kValueDims[] = {128, 128, 64, 40, 8};
  for (std::size_t i = 0; i < specs.size(); ++i) {
    specs[i].value_dim = kValueDims[i % std::size(kValueDims)];
    if (i % 2 == 0) specs[i].dtype = DType::f16;
    if (i % 3 == 0) specs[i].heads = 3, specs[i].kv_heads = 1;
  }
  specs[9].kv_heads = specs[9].visibility.columns.heads;
  specs[9].heads = 2 * specs[9].kv_heads;
  return specs;
}

/// Returns the shapes at some indices.
std::vector<Spec> chosen(const std::vector<Spec>& specs, const std::vector<int>& places) {
  std::vector<Spec> some;
  for (int place : places) some.push_back(specs[place]);
  return some;
}

class Masks : public ChapterTest, public ::testing::WithParamInterface<Spec> {};

TEST_P(Masks, HaveRightGradients) { expect_right(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Every, Masks, ::testing::ValuesIn(masks()));
INSTANTIATE_TEST_SUITE_P(Dropout, Masks, ::testing::ValuesIn(dropped()));
INSTANTIATE_TEST_SUITE_P(Bias, Masks, ::testing::ValuesIn(biased()));
INSTANTIATE_TEST_SUITE_P(WideKeys, Masks, ::testing::ValuesIn(with_wide_keys()));

TEST_F(ChapterTest, WideKeysInEveryMode) {
  unsigned seed = 0;
  for (const Async mode : {Async::eager, Async::lazy, Async::random})
    for (const Spec& spec : chosen(with_wide_keys(), {1, 3, 6, 8})) {
      const RandomWarpOrder order(++seed);
      const InBackground background(mode, seed);
      expect_right(spec);
    }
}

TEST_F(ChapterTest, OtherWidthsOfValuesAreRefused) {
  Spec spec = masked_spec(20, 20, {}, 192);
  spec.value_dim = 136;
  EXPECT_NE(kMasks.refusal(kGradient, spec).find("up to 128 columns"), std::string::npos);
  spec.value_dim = 128;
  EXPECT_EQ(kMasks.refusal(kGradient, spec), "");
  spec.score.softcap = 2;
  EXPECT_NE(kMasks.refusal(kGradient, spec).find("no function on scores"), std::string::npos);
}

class TracedMasks : public Masks {};

TEST_P(TracedMasks, BreakNoRuleOfMemory) {
  Spec spec = GetParam();
  spec.dtype = DType::bf16, spec.set_head_dim(64);  // as in the traced program
  spec.scale = default_scale(64);
  expect_right(spec);
}

INSTANTIATE_TEST_SUITE_P(Every, TracedMasks,
                         ::testing::ValuesIn(chosen(masks(), {3, 8, 12, 13, 15, 21, 26})));
INSTANTIATE_TEST_SUITE_P(Dropout, TracedMasks, ::testing::ValuesIn(chosen(dropped(), {3, 6, 7})));
INSTANTIATE_TEST_SUITE_P(Bias, TracedMasks, ::testing::ValuesIn(chosen(biased(), {2, 6, 7})));

// V and dO are the identity: then O is P after dropout in the forward pass, and dV is P after dropout in the
// backward pass.
TEST_F(ChapterTest, TheGradientsDropoutLeavesOutWhatForwardLeftOut) {
  for (int head_dim : {64, 128, 256}) {
    Spec spec = masked_spec(head_dim, head_dim, Visibility::causal(), head_dim);
    spec.batch = 2, spec.kv_heads = spec.heads;
    spec.score = {.dropout = 0.4f, .seed = 77};
    Inputs inputs = inputs_of(spec, InputKind::normal, 3);
    for (std::vector<float>* tensor : {&inputs.v, &inputs.d_o})
      for (std::size_t i = 0; i < tensor->size(); ++i)
        (*tensor)[i] = int(i) % head_dim == int(i) / head_dim % head_dim;
    const Outputs forward = run_once(kMasks, spec, inputs, kMasks.place("mask_functions"));
    inputs.o = forward.o, inputs.lse = forward.lse;
    const Outputs outputs = run_once(kMasks, spec, inputs, kGradient);
    int left_out = 0, other = 0;
    for (int head = 0; head < spec.batch * spec.heads; ++head)
      for (int query = 0; query < head_dim; ++query)
        for (int key = 0; key <= query; ++key) {
          const int64_t first = int64_t(head) * head_dim * head_dim;
          const float o = forward.o[first + query * head_dim + key],
                      dv = outputs.dv[first + key * head_dim + query];
          left_out += o == 0;
          other += (o == 0) != (dv == 0) || std::abs(o - dv) > 0.02f * o;
        }
    EXPECT_EQ(other, 0) << head_dim;
    EXPECT_NEAR(left_out, 0.4 * spec.batch * spec.heads * head_dim * (head_dim + 1) / 2, 0.02 * left_out);
  }
}

TEST_F(ChapterTest, MasksInAnyOrderOfTheWarps) {
  const RandomWarpOrder order(5);
  for (const Spec& spec : chosen(masks(), {2, 6, 11, 19, 22})) expect_right(spec);
  for (const Spec& spec : chosen(dropped(), {3, 6})) expect_right(spec);
  for (const Spec& spec : chosen(biased(), {2})) expect_right(spec);
}

TEST_F(ChapterTest, OneVisibleKeyMovesNeitherQueriesNorKeys) {
  for (int head_dim : {64, 112, 128, 256})
    expect_one_key_moves_nothing(masked_spec(130, 130, {.window = {.left = 0, .right = 0}}, head_dim));
}

// Step 7's gradients have the same bits for any order of warps and additions, under every kind of mask and
// with both ways to add.
TEST_F(ChapterTest, TurnsGiveTheSameBits) {
  std::vector<Spec> specs = chosen(masks(), {1, 7, 9, 10, 11, 12, 15, 23});
  for (const Spec& spec : chosen(dropped(), {2, 7})) specs.push_back(spec);
  for (const Spec& spec : chosen(biased(), {2})) specs.push_back(spec);
  for (const Spec& spec : chosen(with_wide_keys(), {0, 1, 5, 9})) specs.push_back(spec);
  for (const Spec& spec : specs) {
    const Inputs inputs = inputs_of(spec, InputKind::normal, 7);
    const Outputs once = run_once(kMasks, spec, inputs, kInTurns);
    const RandomWarpOrder order(1);
    const InBackground background(Async::random, 1);
    const Outputs again = run_once(kMasks, spec, inputs, kInTurns);
    EXPECT_TRUE(again.dq == once.dq && again.dk == once.dk && again.dv == once.dv) << describe(spec);
  }
}

// A packed sequence whose tensors are all NaN: its neighbours' gradients are right and not overwritten.
TEST_F(ChapterTest, ASequenceFullOfNaNDoesNotLeakIntoItsNeighbours) {
  for (const auto& [head_dim, score] : {std::pair(64, ScoreFunction{}),
                                        {128, {}},
                                        {256, {}},
                                        {192, {}},
                                        {64, {.dropout = 0.2f, .seed = 5}},
                                        {256, {.dropout = 0.2f, .seed = 5}},
                                        {128, {.softcap = 2, .alibi = {0.5f, 0.25f, 0.0625f, 1}}}}) {
    Spec spec = packed_spec({0, 70, 170, 230}, {0, 70, 170, 230}, head_dim, {});
    spec.score = score;
    if (head_dim == 192) spec.value_dim = 128;
    Inputs inputs = inputs_of(spec, InputKind::normal, 3);
    const Expected expected(Operation::backward, spec, inputs, all_rows(spec));
    const Outputs clean = run_once(kMasks, spec, inputs, kGradient);
    const auto is_poisoned = [](int64_t row) { return row % 230 >= 70 && row % 230 < 170; };
    for (TensorId id : {TensorId::q, TensorId::k, TensorId::v, TensorId::o, TensorId::lse, TensorId::d_o}) {
      const int64_t columns = columns_of(spec, id);
      for (int64_t i = 0; i < int64_t(inputs[id].size()); ++i)
        if (is_poisoned(i / columns)) inputs[id][i] = std::numeric_limits<float>::quiet_NaN();
    }
    Outputs outputs = run_once(kMasks, spec, inputs, kGradient);
    for (TensorId id : {TensorId::dq, TensorId::dk, TensorId::dv})
      for (int64_t i = 0; i < int64_t(outputs[id].size()); ++i)
        if (is_poisoned(i / columns_of(spec, id))) outputs[id][i] = clean[id][i];
    EXPECT_EQ(describe_failure(expected.judge(outputs), "the oracle"), "") << describe(spec);
  }
}

TEST_F(ChapterTest, ManySequencesFindTheirPlace) {
  std::vector<int> first = {0};
  for (int i = 0; i < 1200; ++i) first.push_back(first.back() + (i % 7 == 0 ? i % 2 + 1 : 0));
  Spec spec = packed_spec(first, first, 64);
  spec.heads = spec.kv_heads = 1;
  expect_right(spec);
}

}  // namespace
}  // namespace flashbook::testing

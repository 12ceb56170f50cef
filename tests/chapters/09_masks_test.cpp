#include "chapters/09_masks/host/chapter.h"
#include "tests/chapters/forward.h"
#include "tests/chapters/layouts.h"
#include "tests/chapters/padded.h"
#include "tests/support/masks.h"

namespace flashbook::testing {

const Chapter& chapter_under_test = kMasks;
const Operation operation_under_test = Operation::forward;
const Chapter* const chapter_before = kMasksBefore;
const char* const first_padded_slug = "dense";

namespace {

enum { kPairs = 1, kPacked, kRanges, kColumns, kFunctions };

/// Returns sequences with as many keys as queries.
Visibility packed(const std::vector<int>& lengths, Window window = {.right = 0}) {
  std::vector<int> first = {0};
  for (int length : lengths) first.push_back(first.back() + length);
  return {.window = window, .documents = {first, first}};
}

Spec packed_spec(const std::vector<int>& lengths, int head_dim = 64, Window window = {.right = 0}) {
  const int tokens = std::accumulate(lengths.begin(), lengths.end(), 0);
  return masked_spec(tokens, tokens, packed(lengths, window), head_dim);
}

/// Returns the outputs of one step, which must reset its counter for the next launch.
Outputs outputs_of(const Spec& spec, const Inputs& inputs, int step) {
  EXPECT_EQ(kMasks.refusal(step, spec), "");
  const UploadedInputs uploaded(operation_under_test, spec, inputs, kMasks.runs_on);
  const Call call(kMasks, spec, uploaded, step);
  call.run();
  EXPECT_TRUE(call.has_zeros()) << "step " << step << ", " << describe(spec);
  return call.download();
}

/// Runs every step that supports the mask, and compares each with the oracle.
void expect_all_steps_right(const Spec& spec, bool columns_can_say_it = true) {
  const Inputs inputs = make_inputs(spec, InputKind::normal, 7);
  const Reference reference = make_reference(spec, inputs, all_rows(spec));
  const auto expect_right = [&](const Spec& said, int step) {
    SCOPED_TRACE("step " + std::to_string(step) + ", " + describe(said));
    const CheckResult result = check(said, reference, outputs_of(said, inputs, step));
    EXPECT_TRUE(result.o.ok) << result.o.worst << ", bound " << result.o.bound;
    EXPECT_TRUE(result.lse.ok) << result.lse.worst << ", bound " << result.lse.bound;
  };
  expect_right(with_dense_mask(spec), kPairs);
  if (spec.batch == 1) expect_right(spec, kPacked);
  expect_right(spec, kRanges);
  if (columns_can_say_it) expect_right(with_columns(spec), kColumns);
  expect_right(spec, kFunctions);
}

TEST_F(ChapterTest, AWindowIsTheSameByAllSteps) {
  for (const Window window : {Window{.left = 0, .right = 0}, Window{.left = 127, .right = 0},
                              Window{.left = 128, .right = 0}, Window{.left = 37, .right = 20},
                              Window{.left = 5000, .right = 0}, Window{.left = 50, .right = 0, .sinks = 5}})
    expect_all_steps_right(masked_spec(330, 300, {.window = window}));
}

TEST_F(ChapterTest, APrefixIsTheSameByAllSteps) {
  for (int head_dim : {128, 256})
    expect_all_steps_right(masked_spec(200, 300, {.window = {.right = 0}, .prefix = 130}, head_dim));
}

// Sequences without tokens first, in the middle and last; one of one token, and one about a tile long.
TEST_F(ChapterTest, PackedSequencesAreTheSameByAllSteps) {
  expect_all_steps_right(packed_spec({0, 1, 127, 0, 128, 1, 129, 0}));
  expect_all_steps_right(packed_spec({0, 65, 1, 0, 63, 64, 0}, 256, {}));
  expect_all_steps_right(packed_spec({191, 192, 193}, 64, {.left = 40, .right = 3}));
  Visibility uneven = packed({});  // queries without keys, keys without queries
  uneven.documents = {{0, 0, 20, 150, 151, 151}, {0, 40, 40, 130, 300, 310}};
  expect_all_steps_right(masked_spec(151, 310, uneven, 128));
}

TEST_F(ChapterTest, HeadDimensionsThatTilesPadAreTheSameByAllSteps) {
  for (int head_dim : {40, 80, 112, 192, 200})
    expect_all_steps_right(packed_spec({70, 0, 1, 129}, head_dim, {.left = 40, .right = 3}));
  for (const ScoreFunction& score :
       {ScoreFunction{.softcap = 20}, {.alibi = {0.5f, 0.25f, 0.125f, 0.0625f}}}) {
    Spec spec = masked_spec(130, 150, {.window = {.left = 90, .right = 0}}, 96);
    spec.score = score;
    const Inputs inputs = make_inputs(spec, InputKind::normal, 7);
    const Reference reference = make_reference(spec, inputs, all_rows(spec));
    EXPECT_TRUE(check(spec, reference, outputs_of(spec, inputs, kFunctions)).ok()) << describe(spec);
  }
}

/// Returns problems whose values are narrower or wider than keys: tiles of 192 and 128 columns, and padded
/// ones.
std::vector<Spec> specs_of_wide_keys() {
  std::vector<Spec> specs;
  for (const auto& [head_dim, value_dim] : {std::pair(192, 128),
                                            {192, 128},
                                            {136, 128},
                                            {192, 64},
                                            {184, 40},
                                            {128, 64},
                                            {64, 128},
                                            {256, 128},
                                            {40, 80},
                                            {128, 192}}) {
    const int place = int(specs.size());
    Spec spec = place % 2 == 0 ? masked_spec(200, 331, Visibility::causal_if(place % 4 == 0), head_dim)
                               : packed_spec({0, 1, 140, 127, 0, 129}, head_dim, {.left = 150, .right = 0});
    spec.value_dim = value_dim;
    spec.dtype = place % 3 == 0 ? DType::bf16 : DType::f16;
    specs.push_back(spec);
  }
  Spec full = specs[0], long_rows = specs[0], nothing = specs[0];
  full.visibility = {}, full.batch = 2;
  long_rows.seqlen_k = 900, long_rows.heads = long_rows.kv_heads = 1;
  nothing.seqlen_k = 70;  // the first queries see no key
  for (const Spec& spec : {full, long_rows, nothing}) specs.push_back(spec);
  return specs;
}

TEST_F(ChapterTest, ValuesMayBeNarrowerOrWiderThanKeys) {
  unsigned seed = 0;
  for (const Spec& spec : specs_of_wide_keys()) {
    const Inputs inputs = make_inputs(spec, InputKind::normal, 7);
    const Reference reference = make_reference(spec, inputs, all_rows(spec));
    const Async mode = Async(++seed % 3);
    const RandomWarpOrder order(seed);
    const InBackground background(mode, seed);
    for (int step : {int(kPacked), int(kRanges)}) {
      const CheckResult result = check(spec, reference, outputs_of(spec, inputs, step));
      EXPECT_TRUE(result.ok()) << "step " << step << ", " << describe(spec) << ", mode " << int(mode) << ": "
                               << result.o.max_error << " of " << result.o.bound;
    }
  }
  for (int step : {int(kPairs), int(kColumns), int(kFunctions)})
    EXPECT_NE(kMasks.refusal(step, specs_of_wide_keys()[0]).find("steps 2 and 3"), std::string::npos)
        << kMasks.refusal(step, specs_of_wide_keys()[0]);
}

// Sequences of NaN before and after a sequence that shares tiles of the buffer with them.
TEST_F(ChapterTest, NaNOutsideASequenceDoesNotReachIt) {
  std::mt19937 random(6);
  for (int head_dim : {64, 128, 256})
    for (const ScoreFunction& score :
         {ScoreFunction{}, ScoreFunction{.softcap = 2, .alibi = {0.5f, 0.25f, 0.0625f, 1}},
          ScoreFunction{.bias = random_bias(random, 4, 70)},
          ScoreFunction{.alibi = {0.5f, 0.25f, 0.0625f, 1}, .dropout = 0.2f, .seed = 0x900000001}}) {
      Spec spec = packed_spec({70, 100, 60, 20}, head_dim, {});
      spec.score = score;
      Inputs inputs = make_inputs(spec, InputKind::normal, 3);
      const auto is_poisoned = [](int64_t row) {
        return row % 250 >= 230 || (row % 250 >= 70 && row % 250 < 170);
      };
      const auto poison = [&](std::vector<float>& tensor) {
        for (std::size_t i = 0; i < tensor.size(); ++i)
          if (is_poisoned(int64_t(i) / head_dim)) tensor[i] = std::numeric_limits<float>::quiet_NaN();
      };
      poison(inputs.q), poison(inputs.k), poison(inputs.v);
      std::vector<int64_t> rows = all_rows(spec);
      std::erase_if(rows, is_poisoned);
      const Reference reference = make_reference(spec, inputs, rows);
      for (int step : {int(kPacked), int(kFunctions)})
        if (kMasks.refusal(step, spec).empty()) {
          EXPECT_TRUE(check(spec, reference, outputs_of(spec, inputs, step)).ok()) << step << describe(spec);
        }
    }
}

TEST_F(ChapterTest, ManySequencesFindTheirPlace) {
  std::vector<int> lengths(1500, 0);  // more than a plan's threads
  for (std::size_t i = 0; i < lengths.size(); i += 3) lengths[i] = int(i % 2) + 1;
  Spec spec = packed_spec(lengths);
  spec.heads = spec.kv_heads = 1;
  const Inputs inputs = make_inputs(spec, InputKind::normal, 3);
  EXPECT_TRUE(
      check(spec, make_reference(spec, inputs, all_rows(spec)), outputs_of(spec, inputs, kPacked)).ok());
}

// Two intervals in every form that FlashMask has, different for each key.
TEST_F(ChapterTest, IntervalsMayComeInAnyForm) {
  std::mt19937 random(5);
  for (int bounds : {1, 2, 4})
    for (bool causal : {false, true}) {
      Spec spec = masked_spec(200, 150, Visibility::causal_if(causal));
      spec.batch = 2;
      Columns& columns = spec.visibility.columns;
      columns = {.heads = causal ? 2 : 1, .bounds = bounds};
      columns.queries.resize(2 * columns.heads * 150 * bounds);
      for (int& bound : columns.queries) bound = int(random() % 201);
      const Inputs inputs = make_inputs(spec, InputKind::normal, 3);
      EXPECT_TRUE(
          check(spec, make_reference(spec, inputs, all_rows(spec)), outputs_of(spec, inputs, kColumns)).ok())
          << describe(spec);
    }
}

TEST_F(ChapterTest, BlocksMayBeOfAnySize) {
  for (const auto& [queries, keys] : {std::pair(128, 128), {64, 50}}) {
    Spec spec = masked_spec(300, 260, Visibility::causal_if(keys == 50));
    Blocks& blocks = spec.visibility.blocks;
    blocks = {.queries = queries, .keys = keys, .first = {0}};
    for (int row = 0; row * queries < 300; ++row) {
      for (int block = row % 3; block * keys < 260; block += 2) blocks.key_blocks.push_back(block);
      blocks.first.push_back(int(blocks.key_blocks.size()));
    }
    const Inputs inputs = make_inputs(spec, InputKind::normal, 3);
    EXPECT_TRUE(
        check(spec, make_reference(spec, inputs, all_rows(spec)), outputs_of(spec, inputs, kFunctions)).ok())
        << describe(spec);
  }
}

TEST_F(ChapterTest, FunctionsOnScoresAreRight) {
  std::mt19937 random(6);
  for (DType dtype : {DType::f16, DType::bf16})
    for (const ScoreFunction& score :
         {ScoreFunction{.softcap = 30}, ScoreFunction{.alibi = {0.5f, 0.25f, 0.0625f, 1}},
          ScoreFunction{.softcap = 2, .alibi = {0.5f, 0.25f, 0.0625f, 1}},
          ScoreFunction{.bias = random_bias(random, 4, 70)},
          ScoreFunction{.dropout = 0.2f, .seed = 0x900000001}})
      for (const Visibility& visibility : {Visibility{}, packed({60, 0, 140})}) {
        Spec spec = masked_spec(200, 200, visibility, dtype == DType::f16 ? 64 : 128);
        spec.dtype = dtype;
        spec.score = score;
        EXPECT_NE(kMasks.refusal(kRanges, spec).find("use step 5"), std::string::npos);
        const Inputs inputs = make_inputs(spec, InputKind::normal, 3);
        const CheckResult result =
            check(spec, make_reference(spec, inputs, all_rows(spec)), outputs_of(spec, inputs, kFunctions));
        EXPECT_TRUE(result.ok()) << describe(spec) << ": " << result.o.max_error << " of " << result.o.bound
                                 << ", " << result.lse.max_error << " of " << result.lse.bound;
      }
}

TEST_F(ChapterTest, FunctionsOnScoresAreTakenTogetherAsFarAsKernelsAndFloatsGo) {
  Spec spec = masked_spec(100, 100, {});
  for (const ScoreFunction& other : {ScoreFunction{.softcap = 2}, ScoreFunction{.bias = {0, {1, 1, 1, 1}}}}) {
    spec.score = other;
    spec.score.dropout = 0.1f;
    EXPECT_NE(kMasks.refusal(kFunctions, spec).find("dropout can be combined with slopes"),
              std::string::npos);
  }
  spec.score = {.softcap = 1e6f};  // too large for float32: scores would be lost
  EXPECT_NE(kMasks.refusal(kFunctions, spec).find("up to 1024"), std::string::npos);
  spec.score = {.alibi = {1, 1, 1, 1}, .bias = {0, {1, 1, 1, 1}}};
  EXPECT_NE(kMasks.refusal(kFunctions, spec).find("or both"), std::string::npos);
}

// Head dimensions 256 and 64 have different tile sizes, but dropout drops the same pairs.
TEST_F(ChapterTest, DropoutDoesNotDependOnTiles) {
  for (int head_dim : {64, 256}) {
    Spec spec = masked_spec(150, 170, {.window = {.left = 100, .right = 0}}, head_dim);
    spec.batch = 2;
    spec.score = {.dropout = 0.5f, .seed = 11};
    const Inputs inputs = make_inputs(spec, InputKind::normal, 3);
    EXPECT_TRUE(
        check(spec, make_reference(spec, inputs, all_rows(spec)), outputs_of(spec, inputs, kFunctions)).ok())
        << describe(spec);
  }
}

class TracedMasks : public ChapterTest {};

TEST_F(TracedMasks, BreakNoRuleOfMemory) {
  expect_all_steps_right(packed_spec({0, 1, 140, 60}));
  Spec spec = masked_spec(200, 260, {.window = {.left = 70, .right = 0}});
  std::mt19937 random(8);
  for (const ScoreFunction& score :
       {ScoreFunction{.alibi = {0.5f, 0.25f, 0.0625f, 1}},
        ScoreFunction{.softcap = 4, .alibi = {0.5f, 0.25f, 0.0625f, 1}},
        ScoreFunction{.bias = random_bias(random, 4, 9)}, ScoreFunction{.dropout = 0.5f}})
    for (Spec scored : {spec, packed_spec({0, 1, 140, 60})}) {
      scored.score = score;
      outputs_of(scored, make_inputs(scored, InputKind::normal, 3), kFunctions);
    }
}

}  // namespace
}  // namespace flashbook::testing

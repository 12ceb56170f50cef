#include "chapters/08_decoding/host/chapter.h"
#include "common/attention/pages.h"
#include "tests/chapters/conformance.h"

namespace flashbook::testing {

const Chapter& chapter_under_test = kDecoding;
const Operation operation_under_test = Operation::decode;
const Chapter* const chapter_before = kDecodingBefore;

namespace {

/// Two queries of eight heads against a cache.
Shape cache_of(std::vector<int> lengths, int head_dim = 64) {
  const int longest = *std::ranges::max_element(lengths), batch = int(lengths.size());
  return {.batch = batch,
          .heads = 8,
          .kv_heads = 2,
          .seqlen_q = 2,
          .seqlen_k = std::max(longest, 1),
          .head_dim = head_dim,
          .visibility = {.window = {.right = 0}, .lengths = std::move(lengths)},
          .dtype = DType::bf16,
          .scale = default_scale(head_dim)};
}

/// NaN behind every sequence's last key.
void poison_tails(const Shape& shape, Inputs& inputs) {
  for (int batch = 0; batch < shape.batch; ++batch)
    for (int head = 0; head < shape.kv_heads; ++head) {
      const int64_t first = (int64_t(batch) * shape.kv_heads + head) * shape.seqlen_k;
      for (std::vector<float>* tensor : {&inputs.k, &inputs.v})
        if (!tensor->empty())
          std::fill(tensor->begin() + (first + shape.visibility.lengths[batch]) * shape.head_dim,
                    tensor->begin() + (first + shape.seqlen_k) * shape.head_dim,
                    std::numeric_limits<float>::quiet_NaN());
    }
}

// Sequences of one batch have lengths of their own, and none. What lies behind a sequence's last key is NaN.
TEST_F(ChapterTest, SequencesHaveLengthsOfTheirOwn) {
  for (int head_dim : {64, 128, 256}) {
    const Shape shape = cache_of({0, 1, 2, 127, 128, 129, 700}, head_dim);
    Inputs inputs = make_inputs(shape, InputKind::normal, 3);
    poison_tails(shape, inputs);
    expect_right(shape, inputs);
  }
}

// ---- pages

/// The same problem with its keys in pages of `rows`, in an order of `seed`, with `spare` pages that nobody
/// uses.
Shape in_pages(Shape shape, int rows, uint64_t seed, int spare = 3) {
  const int pages = ceil_div(shape.seqlen_k, rows) * shape.batch;
  shape.paging = {.rows = rows, .pages = pages + spare, .table = {}};
  std::vector<int> order(pages + spare);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(unsigned(seed)));
  shape.paging.table.assign(order.begin(), order.begin() + pages);
  return shape;
}

/// O and the log-sum-exp of a step, as they lie.
std::vector<std::byte> bits_of(const Shape& shape, const Inputs& inputs, int step) {
  const UploadedInputs uploaded(Operation::decode, shape, inputs, device::Place::device);
  const Call call(kDecoding, shape, uploaded, step);
  call.run();
  return call.download_bytes();
}

constexpr int kRing = 4, kPages = 5, kEqualWork = 6;

// Pages that no sequence uses and what lies behind a sequence's last key are NaN. Where the pages lie may not
// show in a single bit, nor may it that there are pages.
TEST_F(ChapterTest, PhysicalPagesInAnyOrderGiveTheSameBits) {
  for (int head_dim : {64, 128, 256})
    for (int rows : {16, 32, 64, 128, 512}) {
      const Shape shape = cache_of({0, 1, rows - 1, rows, rows + 1, 300}, head_dim);
      const Inputs inputs = make_inputs(shape, InputKind::normal, 3);
      const Reference reference = make_reference(shape, inputs, all_rows(shape));
      SCOPED_TRACE(describe(shape) + ", pages of " + std::to_string(rows));
      for (int step : {kPages, kEqualWork}) {
        const std::vector<std::byte> want = bits_of(shape, inputs, step);
        for (uint64_t seed : {1, 2}) {
          const Shape paged = in_pages(shape, rows, seed);
          ASSERT_EQ(kDecoding.step(step).why_not(paged), "");
          EXPECT_TRUE(bits_of(paged, scatter_pages(paged, inputs), step) == want) << "step " << step;
        }
      }
      EXPECT_TRUE(check(shape, reference, run_once(kDecoding, shape, inputs, kPages)).ok());
    }
}

TEST_F(ChapterTest, AWrongPageShows) {
  const Shape shape = in_pages(cache_of({100, 300}), 16, 1);
  const Inputs inputs = scatter_pages(shape, make_inputs(without_pages(shape), InputKind::normal, 3));
  const Reference reference = make_reference(shape, inputs, all_rows(shape));
  for (int step : {kPages, kEqualWork}) {
    EXPECT_TRUE(check(shape, reference, run_once(kDecoding, shape, inputs, step)).ok());
    Shape wrong = shape;
    std::swap(wrong.paging.table[2], wrong.paging.table[19 + 2]);  // of the other sequence
    EXPECT_FALSE(check(shape, reference, run_once(kDecoding, wrong, inputs, step)).o.ok);
    wrong = shape;
    std::swap(wrong.paging.table[19 + 18],
              wrong.paging.table[18]);  // the last page, for one that is not used
    EXPECT_FALSE(check(shape, reference, run_once(kDecoding, wrong, inputs, step)).o.ok);
  }
}

TEST(Decoding, SaysWhichPagesItTakes) {
  const Shape shape = cache_of({100});
  for (int rows : {8, 24, 100}) EXPECT_NE(kDecoding.step(kPages).why_not(in_pages(shape, rows, 1)), "");
  EXPECT_NE(kDecoding.step(kRing).why_not(in_pages(shape, 16, 1)).find("pages"), std::string::npos);
}

// The rows of all sequences are rows of tiles over the prefix, which the first sequence's pages hold. What
// the table says of it for the others is never asked: here it names a page of NaN. A sequence may be all
// prefix.
TEST_F(ChapterTest, APrefixIsReadThroughTheFirstSequenceAlone) {
  for (int head_dim : {64, 128, 256})
    for (int queries : {1, 3}) {
      Shape shape =
          cache_of({64 + queries, 64 + queries - 1, 200, 65 + queries, 300, 90, 91, 92, 93}, head_dim);
      shape.seqlen_q = queries;
      shape.paging = random_pages(shape, 32, 64, 1);
      ++shape.paging.pages;  // the last is nobody's, and NaN
      validate(shape);
      const Inputs inputs = make_inputs(shape, InputKind::normal, 3);
      const Reference reference = make_reference(shape, inputs, all_rows(shape));
      Shape others = shape;
      const int of_sequence = int(shape.paging.table.size()) / shape.batch;
      for (int batch = 1; batch < shape.batch; ++batch)
        for (int page : {0, 1}) others.paging.table[batch * of_sequence + page] = shape.paging.pages - 1;
      const CheckResult result = check(shape, reference, run_once(kDecoding, others, inputs, kEqualWork));
      EXPECT_TRUE(result.ok()) << describe(shape);
    }
}

TEST(Decoding, SaysWhoSharesNoPrefix) {
  Shape shape = cache_of({200, 300});
  shape.paging = random_pages(shape, 32, 64, 1);
  validate(shape);
  shape.paging.shared = 96;  // the third page is not the same
  EXPECT_THROW(validate(shape), InputError);
  shape = cache_of({64, 300});  // two queries, of which the first does not see the last key of the prefix
  shape.paging = random_pages(shape, 32, 64, 1);
  EXPECT_THROW(validate(shape), InputError);
}

// ---- rows of a tile

// From multi-head to multi-query attention, one query and a few that were guessed ahead.
TEST_F(ChapterTest, GroupsOfAnySizeAreRows) {
  for (int group : {1, 2, 3, 5, 7, 8, 16, 17, 33, 64, 128})
    for (int queries : {1, 4}) {
      if (device::machine() != device::Machine::gpu && queries != 1 + group % 2 * 3) continue;
      Shape shape = cache_of({70, 150}, group % 2 == 0 ? 128 : 64);
      shape.heads = 2 * group;
      shape.seqlen_q = queries;
      expect_right(shape, make_inputs(shape, InputKind::normal, group));
    }
}

TEST_F(ChapterTest, AManyTimesLongerSequenceBesideOneKey) {
  const bool gpu = device::machine() == device::Machine::gpu;
  const Shape shape = cache_of({1, gpu ? 1'000'000 : 20'000, 1});
  expect_right(shape, make_inputs(shape, InputKind::normal, 6));
}

/// Runs a step again and again: `on_gpu` times on a GPU.
void expect_same_bits_of(const Shape& shape, int step, int on_gpu) {
  const int launches = device::machine() == device::Machine::gpu ? on_gpu : 2;
  expect_same_bits(shape, make_inputs(shape, InputKind::normal, 5), step, launches);
}

// Blocks arrive in another order each time, and whoever comes last merges.
TEST_F(ChapterTest, EveryLaunchGivesTheSameBits) {
  for (int step : {kRing, kEqualWork}) expect_same_bits_of(cache_of({5000, 1, 77, 0, 900}, 128), step, 5000);
}

// ---- latent attention

/// Heads that share a latent cache of sequences.
Shape latent_of(std::vector<int> lengths, int heads, int seqlen_q = 1, DType dtype = DType::bf16) {
  Shape shape = cache_of(std::move(lengths), kLatentKeyDim);
  shape.heads = heads, shape.kv_heads = 1, shape.seqlen_q = seqlen_q, shape.dtype = dtype;
  return shape;
}

// Nobody who runs the chapter as it is reads that a step cannot run.
TEST_F(ChapterTest, ADefaultRunGivesLatentAttentionAShapeOfItsOwn) {
  const char* words[] = {kDecoding.name, "--reps", "1"};
  const Report report =
      run(*parse_command_line(int(std::size(words)), words, kDecoding).options, kDecoding, nullptr).report;
  for (const StepReport& step : report.steps) {
    EXPECT_EQ(step.why_not, "") << step.step;
    EXPECT_FALSE(step.oracle.empty()) << step.step;
    EXPECT_EQ(!step.shape.empty(), kDecoding.step(step.step).latent) << step.step;
  }
  EXPECT_EQ(report.steps.back().shape, describe(with_latent_keys(kDecoding.default_shape())));
}

// A tile has 64 keys, and tiles go two by two. What lies behind a last key, and pages that nobody has, are
// NaN.
TEST_F(ChapterTest, LatentKeysAreValuesToo) {
  std::vector<Shape> shapes = {latent_of({0, 1, 63, 64, 65, 300}, 16),
                               latent_of({129, 0, 30}, 128, 1, DType::f16), latent_of({130, 2}, 24, 4)};
  shapes[2].kv_heads = 2;
  for (const Shape& shape : shapes) {
    Inputs inputs = make_inputs(shape, InputKind::normal, 3);
    poison_tails(shape, inputs);
    expect_right(shape, inputs);
    const int step = int(kDecoding.steps.size());
    const std::vector<std::byte> want = bits_of(shape, inputs, step);
    for (int rows : {64, 192}) {
      const Shape paged = in_pages(shape, rows, rows);
      ASSERT_EQ(kDecoding.step(step).why_not(paged), "");
      EXPECT_TRUE(bits_of(paged, scatter_pages(paged, inputs), step) == want) << "pages of " << rows;
    }
  }
}

// Beyond f16's range on both sides, in parts of f16.
TEST_F(ChapterTest, PartsOfLatentValuesMayBeOfAnySize) {
  for (float size : {0x1p60f, 0x1p-60f}) {
    Shape shape = latent_of({600}, 16);
    shape.scale /= size;
    Inputs inputs = make_inputs(shape, InputKind::normal, 3);
    for (float& x : inputs.k) x *= size;
    expect_right(shape, inputs);
  }
}

// The lengths may be in device memory alone: as many sequences as blocks may be cut after all.
TEST_F(ChapterTest, LatentAttentionHasRoomForPartsWhateverTheLengthsAre) {
  std::vector<int> lengths(device::multiprocessors(), 64);
  lengths[0] = 64 * int(lengths.size());
  const Shape shape = latent_of(lengths, 16);
  Shape known = shape;
  known.visibility.lengths.clear();
  const Inputs inputs = make_inputs(shape, InputKind::normal, 3);
  const UploadedInputs uploaded(Operation::decode, shape, inputs, device::Place::device);
  const int step = int(kDecoding.steps.size());
  const Call call(kDecoding, known, uploaded, step);
  call.run();
  EXPECT_TRUE(check(shape, make_reference(shape, inputs, all_rows(shape)), call.download()).ok());
}

// As calls from Python do, on one stream: what one leaves in the workspace may not disturb the next,
// whichever step it takes. Counters are 0 again, and nobody's parts lie where another's counters do.
TEST_F(ChapterTest, CallsOfAllStepsMayShareAWorkspace) {
  const int latent = int(kDecoding.steps.size());
  const std::vector<std::pair<Shape, int>> calls = {
      {latent_of({600, 30}, 64), latent}, {cache_of({1700}), kRing},     {latent_of({3000}, 16), latent},
      {cache_of({900}, 128), kEqualWork}, {latent_of({70}, 64), latent}, {cache_of({1700, 20}), kEqualWork}};
  int64_t bytes = 0;
  for (const auto& [shape, step] : calls)
    bytes = std::max(bytes, kDecoding.step(step).workspace_bytes(shape));
  device::Buffer memory(device::Place::device, bytes);
  memory.upload(std::vector<std::byte>(bytes));
  for (const auto& [shape, step] : calls) {
    EXPECT_GT(kDecoding.step(step).zeroed_bytes(shape), 0);
    const Inputs inputs = make_inputs(shape, InputKind::normal, 3);
    const UploadedInputs uploaded(Operation::decode, shape, inputs, device::Place::device);
    const auto attend = [&, &shape = shape, step = step](Tensors tensors) {
      tensors.workspace = memory.data();
      kDecoding.step(step).run(shape, tensors, nullptr);
    };
    const Call call(Operation::decode, shape, uploaded, 0, attend);
    call.run();
    EXPECT_TRUE(check(shape, make_reference(shape, inputs, all_rows(shape)), call.download()).ok())
        << describe(shape);
  }
}

// More tiles than pages that are looked up at a time.
TEST_F(ChapterTest, PagesOfManyTilesAreLookedUpAgainAndAgain) {
  for (int head_dim : {64, 128, 256, kLatentKeyDim}) {
    const bool latent = head_dim == kLatentKeyDim;
    const Shape shape =
        latent ? in_pages(latent_of({13000}, 8), 64, 1) : in_pages(cache_of({2600}, head_dim), 16, 1);
    const int step = latent ? int(kDecoding.steps.size()) : kEqualWork;
    const Inputs inputs = scatter_pages(shape, make_inputs(without_pages(shape), InputKind::normal, 3));
    EXPECT_TRUE(
        check(shape, make_reference(shape, inputs, all_rows(shape)), run_once(kDecoding, shape, inputs, step))
            .ok());
  }
}

TEST_F(ChapterTest, EveryLaunchOfLatentAttentionGivesTheSameBits) {
  expect_same_bits_of(latent_of({700, 1, 0}, 80), int(kDecoding.steps.size()), 1000);
}

TEST(Decoding, OfLatentKeysTakesPagesOfWholeTiles) {
  const int step = int(kDecoding.steps.size());
  EXPECT_EQ(kDecoding.step(step).why_not(in_pages(latent_of({100}, 16), 128, 1)), "");
  EXPECT_EQ(kDecoding.step(step).why_not(in_pages(latent_of({100}, 16), 32, 1)),
            "pages have 64 rows or a multiple here: give such a number");
}

class TracedCache : public ChapterTest {};

TEST_F(TracedCache, OfLatentKeysBreaksNoRuleOfMemory) {
  const Shape shape = in_pages(latent_of({0, 1, 200, 64}, 128), 64, 1);
  expect_right(shape, make_inputs(shape, InputKind::normal, 3));
}

TEST_F(TracedCache, OfPagesBreaksNoRuleOfMemory) {
  const Shape shape = in_pages(cache_of({0, 1, 300, 17}), 16, 1);
  expect_right(shape, scatter_pages(shape, make_inputs(without_pages(shape), InputKind::normal, 3)), kPages);
}

TEST_F(TracedCache, OfASharedPrefixBreaksNoRuleOfMemory) {
  Shape shape = cache_of({300, 70, 65, 140});
  shape.paging = random_pages(shape, 32, 64, 1);
  expect_right(shape, make_inputs(shape, InputKind::normal, 3), kEqualWork);
}

TEST_F(TracedCache, OfManySequencesBreaksNoRuleOfMemory) {
  const Shape shape = cache_of({0, 900, 1, 130, 0, 64}, 128);
  expect_right(shape, make_inputs(shape, InputKind::normal, 3));
}

}  // namespace
}  // namespace flashbook::testing

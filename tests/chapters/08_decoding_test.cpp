#include "chapters/08_decoding/host/chapter.h"
#include "tests/chapters/caches.h"
#include "tests/support/masks.h"

namespace flashbook::testing {

const Chapter& chapter_under_test = kDecoding;
const Operation operation_under_test = Operation::decode;
const Chapter* const chapter_before = kDecodingBefore;

namespace {

// Sequences in a batch have different lengths, including 0. Everything past a sequence's last key is NaN.
TEST_F(ChapterTest, SequencesHaveLengthsOfTheirOwn) {
  for (int head_dim : {64, 128, 256}) {
    const Spec spec = cache_of({0, 1, 2, 127, 128, 129, 700}, head_dim);
    Inputs inputs = make_inputs(spec, InputKind::normal, 3);
    poison_tails(spec, inputs);
    expect_right(spec, inputs);
  }
}

// ---- pages

constexpr Slug kRing{kDecoding, "ring"}, kPages{kDecoding, "paged"}, kEqualWork{kDecoding, "equal_work"},
    kLatent{kDecoding, "latent"}, kE4m3Cache{kDecoding, "e4m3_cache"}, kBoxes{kDecoding, "boxes"},
    kWarpgroups{kDecoding, "warpgroup"}, kSparsePrefill{kDecoding, "sparse_prefill"},
    kSparseDecode{kDecoding, "sparse_decode"};
std::vector<int> paged_steps() { return {kPages, kEqualWork, kBoxes, kWarpgroups}; }

// Unused pages and everything past a sequence's last key are NaN. The order of pages, and paging itself, must
// not change a bit.
TEST_F(ChapterTest, PhysicalPagesInAnyOrderGiveTheSameBits) {
  for (const auto& [head_dim, rows] : {std::pair(64, 16), {64, 64}, {64, 512}, {128, 32}, {256, 128}}) {
    const Spec spec = cache_of({0, 1, rows - 1, rows, rows + 1, 300}, head_dim);
    const Inputs inputs = make_inputs(spec, InputKind::normal, 3);
    const Reference reference = make_reference(spec, inputs, all_rows(spec));
    expect_pages_do_not_show(paged_steps(), spec, inputs, rows);
    EXPECT_TRUE(check(spec, reference, run_once(kDecoding, spec, inputs, kPages)).ok());
  }
}

// Tiles over the prefix combine rows of all sequences, and use the first sequence's pages. The other
// sequences' table entries for it must not be read: here they point to a page of NaNs. A sequence may consist
// of the prefix only.
TEST_F(ChapterTest, APrefixIsReadThroughTheFirstSequenceAlone) {
  for (int head_dim : {64, 128, 256})
    for (int queries : {1, 3}) {
      Spec spec =
          cache_of({64 + queries, 64 + queries - 1, 200, 65 + queries, 300, 90, 91, 92, 93}, head_dim);
      spec.seqlen_q = queries;
      spec.paging = random_pages(spec, 32, 64, 1);
      ++spec.paging.pages;  // the last is unused, and NaN
      validate(spec);
      const Inputs inputs = make_inputs(spec, InputKind::normal, 3);
      const Reference reference = make_reference(spec, inputs, all_rows(spec));
      Spec others = spec;
      const int of_sequence = int(spec.paging.table.size()) / spec.batch;
      for (int batch = 1; batch < spec.batch; ++batch)
        for (int page : {0, 1}) others.paging.table[batch * of_sequence + page] = spec.paging.pages - 1;
      const CheckResult result = check(spec, reference, run_once(kDecoding, others, inputs, kEqualWork));
      EXPECT_TRUE(result.ok()) << describe(spec);
    }
}

// ---- rows of a tile

// From multi-head to multi-query attention, with one query and with a few speculative ones.
TEST_F(ChapterTest, GroupsOfAnySizeAreRows) {
  for (int group : {1, 2, 7, 8, 16, 33, 128})
    for (int queries : {1, 4}) {
      if (device::machine() != device::Machine::gpu && queries != 1 + group % 2 * 3) continue;
      Spec spec = cache_of({70, 150}, group % 2 == 0 ? 128 : 64);
      spec.heads = 2 * group;
      spec.seqlen_q = queries;
      expect_right(spec, make_inputs(spec, InputKind::normal, group));
    }
}

TEST_F(ChapterTest, AManyTimesLongerSequenceBesideOneKey) {
  const bool gpu = device::machine() == device::Machine::gpu;
  const Spec spec = cache_of({1, gpu ? 1'000'000 : 8'000, 1});
  expect_right(spec, make_inputs(spec, InputKind::normal, 6));
}

/// Runs a step repeatedly: `on_gpu` times on a GPU.
void expect_same_bits_of(const Spec& spec, int step, int on_gpu) {
  const int launches = device::machine() == device::Machine::gpu ? on_gpu : 2;
  expect_same_bits(spec, make_inputs(spec, InputKind::normal, 5), step, launches);
}

// Blocks arrive in a different order each time, and the last one merges.
TEST_F(ChapterTest, EveryLaunchGivesTheSameBits) {
  for (int step : {kRing, kEqualWork, kBoxes, kWarpgroups})
    expect_same_bits_of(cache_of({2000, 1, 77, 0, 900}, 128), step, 5000);
}

// ---- common layouts

/// Checks steps on [batch, seqlen, heads, head_dim], or with pages on [pages, rows, kv_heads, head_dim].
/// Memory that must not be read is NaN.
void expect_right_by_token(const std::vector<int>& steps, Spec spec, int rows) {
  if (rows > 0) spec = in_pages(spec, rows, 5);
  spec.layout = layout_bshd(spec);
  const Spec plain = without_pages(spec);
  const Inputs clean = make_inputs(plain, InputKind::normal, 7);
  Inputs inputs = clean;
  poison_tails(spec, inputs);
  const Reference reference = make_reference(plain, clean, all_rows(plain));
  if (rows > 0) inputs = scatter_pages(spec, inputs);
  for (int step : steps) {
    SCOPED_TRACE("step " + std::to_string(step) + ", " + describe(spec));
    ASSERT_EQ(kDecoding.refusal(step, spec), "");
    const CheckResult result = check(plain, reference, run_once(kDecoding, spec, inputs, step));
    EXPECT_TRUE(result.o.ok) << result.o.worst << ", bound " << result.o.bound;
    EXPECT_TRUE(result.lse.ok) << result.lse.worst << ", bound " << result.lse.bound;
  }
}

// Boxes of a whole tile and of a page, and rows that cannot be boxes because they would not be aligned to 128
// bytes.
TEST_F(ChapterTest, CachesByTokenAreRight) {
  for (int head_dim : {64, 128, 256, 72}) {
    const Spec spec = cache_of({0, 1, 63, 64, 129, 300}, head_dim);
    for (int rows : {0, 16}) expect_right_by_token({kEqualWork, kBoxes, kWarpgroups}, spec, rows);
  }
  for (int rows : {1, 4, 8, 64, 300}) {
    expect_right_by_token({kBoxes}, cache_of({0, 2, 70, 300}), rows);
    if (rows >= 8) expect_right_by_token({kWarpgroups}, cache_of({0, 2, 70, 300}), rows);
  }
}

// From one row to more rows than a block of two warpgroups has, with and without splitting keys over blocks.
TEST_F(ChapterTest, TokensOfCachesByTokenAreRowsOfTiles) {
  for (const auto& [heads, queries] : {std::pair(2, 1), {8, 4}, {16, 8}, {16, 9}, {6, 33}, {32, 20}}) {
    Spec spec = cache_of({40, 700, 0, 7}, heads == 16 ? 256 : 64);
    spec.heads = heads, spec.seqlen_q = queries;
    expect_right_by_token({kBoxes, kWarpgroups}, spec, queries % 2 == 0 ? 16 : 0);
  }
  Spec one = cache_of({9000}, 128);  // too many parts for the last arriver to merge
  one.heads = 20, one.kv_heads = 1;
  expect_right_by_token({kBoxes, kWarpgroups}, one, 64);
  std::vector<int> lengths(17, 200);
  lengths[5] = 3000;  // the only one that is split
  expect_right_by_token({kBoxes, kWarpgroups}, cache_of(lengths), 16);
}

TEST_F(ChapterTest, CachesByTokenAreRightInAnyOrder) {
  for (int seed = 0; seed < 6; ++seed) {
    const RandomWarpOrder order(seed);
    const InBackground background(std::array{Async::eager, Async::lazy, Async::random}[seed % 3], seed);
    Spec spec = cache_of({5 * seed, 1, 400, 150}, 64 << seed % 2);
    spec.seqlen_q = 1 + seed % 5 * 4;
    expect_right_by_token({kBoxes, kWarpgroups}, spec, seed % 4 == 3 ? 0 : 16 << seed % 4);
  }
}

// ---- latent attention

/// Returns a problem whose heads share the sequences' latent cache.
Spec latent_of(std::vector<int> lengths, int heads, int seqlen_q = 1, DType dtype = DType::bf16) {
  Spec spec = cache_of(std::move(lengths), kLatentKeyDim);
  spec.heads = heads, spec.kv_heads = 1, spec.seqlen_q = seqlen_q, spec.dtype = dtype;
  return spec;
}

/// Returns a problem in which each of `tokens` tokens per sequence has a list of `count` of `keys` latents:
/// in any order, some of them repeated and some missing. The first list has none.
Spec lists_of(int tokens, int heads, int keys, int count, int step = 11, int batch = 1) {
  std::mt19937 random(count);
  Spec spec = latent_of(std::vector<int>(std::size_t(batch), keys), heads, tokens);
  spec.visibility = {};
  if (step == kSparseDecode) spec = with_e4m3_cache(spec);
  Indices& lists = spec.visibility.indices = {.count = count};
  for (int i = 0; i < batch * tokens * count; ++i)
    lists.keys.push_back((i < count && tokens > 1) || random() % 8 == 0 ? -1 : int(random() % keys));
  return spec;
}

/// Makes all keys NaN that are in no list.
void poison_unlisted(const Spec& spec, Inputs& inputs) {
  const Indices& lists = spec.visibility.indices;
  const int64_t of_batch = int64_t(spec.seqlen_q) * lists.count;
  for (int64_t key = 0; key < spec.k_rows(); ++key) {
    const auto first = lists.keys.begin() + key / spec.seqlen_k * of_batch;
    if (std::count(first, first + of_batch, int(key % spec.seqlen_k)) == 0)
      std::fill_n(&inputs.k[key * kLatentKeyDim], kLatentKeyDim, NAN);
  }
}

/// Runs a step on lists of keys, and again with pages and by token, which must not change a bit.
void expect_lists_right(const Spec& spec, int step, InputKind kind = InputKind::normal) {
  SCOPED_TRACE("step " + std::to_string(step) + ", " + describe(spec));
  validate(spec);
  ASSERT_EQ(kDecoding.refusal(step, spec), "");
  Inputs inputs = make_inputs(spec, kind, 3);
  poison_unlisted(spec, inputs);
  const Outputs outputs = run_once(kDecoding, spec, inputs, step);
  EXPECT_EQ(describe_failure(Expected(Operation::decode, spec, inputs, all_rows(spec)).judge(outputs), ""),
            "");
  Spec paged = in_pages(spec, 64, 2);
  paged.layout = layout_bshd(paged);
  const Outputs again = run_once(kDecoding, paged, scatter_pages(paged, inputs), step);
  EXPECT_TRUE(again.o == outputs.o && again.lse == outputs.lse);
}

// A round has 128 entries of a list, in two tiles, and a tile of rows 64 heads.
TEST_F(ChapterTest, ListsMayHaveAnyLengthAndAnyKeys) {
  for (int step : {kSparsePrefill, kSparseDecode}) {
    for (int count : {1, 63, 64, 65, 128, 129, 300})
      expect_lists_right(lists_of(2, count == 64 ? 64 : 24, 200, count, step, 1 + count % 2), step);
    expect_lists_right(lists_of(1, 128, 3000, 2048, step), step);
    expect_lists_right(lists_of(5, 72, 40, 400, step, 2), step);  // fewer keys than entries
    Spec none = lists_of(3, 64, 100, 130, step);
    std::ranges::fill(none.visibility.indices.keys, -1);
    expect_lists_right(none, step);
  }
}

// Scores rise by more than the softmax ignores, within a round and from one to the next.
TEST_F(ChapterTest, MaximaPassFromOneWarpgroupToTheOther) {
  for (int step : {kSparsePrefill, kSparseDecode})
    for (const InputKind kind : {InputKind::drifting, InputKind::large_scores, InputKind::outliers})
      for (const bool ascending : {true, false}) {
        Spec spec = lists_of(1, 64, 500, 500, step);
        Array<int>& keys = spec.visibility.indices.keys;
        std::ranges::sort(keys);
        if (!ascending) std::ranges::reverse(keys);
        expect_lists_right(spec, step, kind);
      }
}

/// Runs a step that is given the arrays of `uploaded` in device memory, and `spec`.
void expect_right_with(const Spec& uploaded, const Spec& spec, const Spec& meant, int step) {
  const Inputs inputs = make_inputs(meant, InputKind::normal, 3);
  const UploadedInputs on_device(Operation::decode, uploaded, inputs, device::Place::device);
  const Call call(kDecoding, spec, on_device, step);
  call.run();
  EXPECT_TRUE(check(meant, make_reference(meant, inputs, all_rows(meant)), call.download()).ok());
}

// Lists in device memory are not validated. Keys that do not exist count as none.
TEST_F(ChapterTest, ListsCannotNameKeysThatDoNotExist) {
  for (int step : {kSparsePrefill, kSparseDecode}) {
    const Spec spec = lists_of(3, 64, 200, 150, step);
    Spec wrong = spec;
    int* other = wrong.visibility.indices.keys.data();
    for (std::size_t i = 0; i < wrong.visibility.indices.keys.size(); ++i)
      if (other[i] < 0) other[i] = std::array{200, INT_MAX, INT_MIN, -2, 201}[i % 5];
    expect_right_with(wrong, spec, spec, step);
  }
}

TEST_F(ChapterTest, ListsAreRightInAnyOrder) {
  for (int seed = 0; seed < 9; ++seed) {
    const RandomWarpOrder order(seed);
    const InBackground background(std::array{Async::eager, Async::lazy, Async::random}[seed % 3], seed);
    const int step = 11 + seed % 2;
    expect_lists_right(lists_of(1 + seed % 4, 16 << seed % 4, 300, 100 + 90 * seed, step), step);
  }
}

TEST_F(ChapterTest, EveryLaunchWithListsGivesTheSameBits) {
  expect_same_bits_of(lists_of(3, 128, 900, 700), kSparsePrefill, 1000);
  expect_same_bits_of(lists_of(3, 128, 900, 700, kSparseDecode), kSparseDecode, 1000);
}

// A tile has 64 keys, and tiles are processed in pairs. Everything past a last key is NaN, as are unused
// pages.
TEST_F(ChapterTest, LatentKeysAreValuesToo) {
  std::vector<Spec> specs = {latent_of({0, 1, 63, 64, 65, 300}, 16),
                             latent_of({129, 0, 30}, 128, 1, DType::f16), latent_of({130, 2}, 24, 4)};
  specs[2].kv_heads = 2;
  for (const Spec& spec : specs) {
    Inputs inputs = make_inputs(spec, InputKind::drifting, 3);
    poison_tails(spec, inputs);
    expect_right(spec, inputs);
    const int step = kLatent;
    const std::vector<std::byte> want = bits_of(spec, inputs, step);
    for (int rows : {64, 192}) {
      const Spec paged = in_pages(spec, rows, rows);
      ASSERT_EQ(kDecoding.refusal(step, paged), "");
      EXPECT_TRUE(bits_of(paged, scatter_pages(paged, inputs), step) == want) << "pages of " << rows;
    }
  }
}

// Values above and below f16's range, split into parts of f16.
TEST_F(ChapterTest, PartsOfLatentValuesMayBeOfAnySize) {
  for (float size : {0x1p60f, 0x1p-60f}) {
    Spec spec = latent_of({600}, 16);
    spec.scale /= size;
    Inputs inputs = make_inputs(spec, InputKind::normal, 3);
    for (float& x : inputs.k) x *= size;
    expect_right(spec, inputs);
  }
}

// The lengths may be only in device memory: then as many sequences as blocks may be split after all.
TEST_F(ChapterTest, LatentAttentionHasRoomForPartsWhateverTheLengthsAre) {
  std::vector<int> lengths(device::multiprocessors(), 64);
  lengths[0] = 64 * int(lengths.size());
  const Spec spec = latent_of(lengths, 16);
  Spec known = spec;
  known.visibility.lengths.clear();
  expect_right_with(spec, known, spec, kLatent);
}

// Consecutive calls on one stream, as from Python: data left in the workspace must not affect the next call,
// whichever step it uses. Counters return to 0, and no step's parts overlap another's counters.
TEST_F(ChapterTest, CallsOfAllStepsMayShareAWorkspace) {
  const int latent = kLatent;
  const std::vector<std::pair<Spec, int>> calls = {
      {latent_of({600, 30}, 64), latent},  {cache_of({1700}), kRing},
      {latent_of({3000}, 16), latent},     {with_e4m3_cache(cache_of({1700})), kE4m3Cache},
      {cache_of({900}, 128), kEqualWork},  {latent_of({70}, 64), latent},
      {cache_of({1700, 20}), kEqualWork},  {cache_of({1700, 20}), kBoxes},
      {cache_of({1700, 20}), kWarpgroups}, {lists_of(2, 64, 300, 500), kSparsePrefill},
      {cache_of({2000}), kEqualWork}};
  int64_t bytes = 0;
  for (const auto& [spec, step] : calls) bytes = std::max(bytes, kDecoding.step(step).workspace_bytes(spec));
  device::Buffer memory(device::Place::device, bytes);
  memory.upload(std::vector<std::byte>(bytes));
  for (const auto& [spec, step] : calls) {
    EXPECT_GT(kDecoding.step(step).zeroed_bytes(spec), 0);
    const Inputs inputs = make_inputs(spec, InputKind::normal, 3);
    const UploadedInputs uploaded(Operation::decode, spec, inputs, device::Place::device);
    const auto attend = [&, &spec = spec, step = step](Tensors tensors) {
      tensors.workspace = memory.data();
      kDecoding.step(step).run(spec, tensors, nullptr);
    };
    const Call call(Operation::decode, spec, uploaded, 0, attend);
    call.run();
    EXPECT_TRUE(check(spec, make_reference(spec, inputs, all_rows(spec)), call.download()).ok())
        << describe(spec);
  }
}

// A sequence has more tiles than the number of pages looked up at a time.
TEST_F(ChapterTest, PagesOfManyTilesAreLookedUpAgainAndAgain) {
  for (int head_dim : {64, 128, 256, kLatentKeyDim}) {
    const bool latent = head_dim == kLatentKeyDim;
    const Spec spec =
        latent ? in_pages(latent_of({13000}, 8), 64, 1) : in_pages(cache_of({2600}, head_dim), 16, 1);
    const int step = latent ? kLatent : kEqualWork;
    const Inputs inputs = scatter_pages(spec, make_inputs(without_pages(spec), InputKind::normal, 3));
    EXPECT_TRUE(
        check(spec, make_reference(spec, inputs, all_rows(spec)), run_once(kDecoding, spec, inputs, step))
            .ok());
  }
}

TEST_F(ChapterTest, EveryLaunchOfLatentAttentionGivesTheSameBits) {
  expect_same_bits_of(latent_of({700, 1, 0}, 80), kLatent, 1000);
}

// ---- a cache in e4m3

class E4m3CacheTest : public ChapterTest {};

Spec e4m3_cache_of(std::vector<int> lengths, int head_dim, Scaling scaling, DType dtype = DType::bf16) {
  Spec spec = with_e4m3_cache(cache_of(std::move(lengths), head_dim));
  spec.e4m3.scaling = scaling, spec.dtype = dtype;
  return spec;
}

/// Returns inputs whose groups of 16 keys differ in size by powers of two, so that their scales do.
Inputs inputs_of_many_sizes(const Spec& spec, uint64_t seed) {
  Spec dense = without_pages(spec);
  Inputs inputs = make_inputs(dense, InputKind::normal, seed);
  const int64_t of_keys = int64_t(spec.seqlen_k) * spec.head_dim;
  for (int64_t i = 0; i < dense.k_elements(); ++i) {
    const int64_t head = i / of_keys, key = i % of_keys / spec.head_dim;
    inputs.k[i] = std::ldexp(inputs.k[i], int((head + key / 16) % 3) - 1);
    inputs.v[i] = std::ldexp(inputs.v[i], int((5 * head + key / 16 * 3) % 11) - 5);
  }
  if (spec.paging.rows > 0) inputs = scatter_pages(spec, inputs);
  round_inputs(spec, inputs);
  return inputs;
}

// Every granularity of scales, with and without pages, in both types of queries. Everything past a sequence's
// last key is NaN, as are unused pages.
TEST_F(E4m3CacheTest, IsRightWithEveryScale) {
  for (int head_dim : {64, 128, 256})
    for (Scaling scaling : {Scaling::tensor, Scaling::head, Scaling::block}) {
      const DType dtype = (head_dim / 64 + int(scaling)) % 2 == 0 ? DType::bf16 : DType::f16;
      const Spec spec = e4m3_cache_of({0, 1, 2, 127, 128, 530}, head_dim, scaling, dtype);
      Inputs inputs = inputs_of_many_sizes(spec, 3);
      poison_tails(spec, inputs);
      expect_right(spec, inputs, kE4m3Cache);
      for (int rows : {1, 16, 1024}) {
        if (rows == 1024 && head_dim > 64) continue;
        const Spec paged = in_pages(e4m3_cache_of({0, 1, 17, 300}, head_dim, scaling, dtype), rows, rows);
        if (scaling == Scaling::block && rows < 16) {
          EXPECT_NE(kDecoding.refusal(kE4m3Cache, paged).find("16 keys or more"), std::string::npos);
          continue;
        }
        expect_right(paged, inputs_of_many_sizes(paged, 3), kE4m3Cache);
      }
    }
}

// With one visible key, the output is its value to the last bit, whatever the queries' magnitude: bf16, which
// is converted to f16, has a larger range.
TEST_F(E4m3CacheTest, TakesQueriesOfAnySize) {
  for (float size : {0x1p-60f, 1.0f, 0x1p40f, 0x1p100f}) {
    Spec spec = e4m3_cache_of({1, 2, 600}, 128, Scaling::head);
    spec.scale /= size;
    Inputs inputs = make_inputs(spec, InputKind::normal, 3);
    for (float& x : inputs.q) x *= size;
    expect_right(spec, inputs, kE4m3Cache);
  }
  Spec one = e4m3_cache_of({1, 1, 1}, 64, Scaling::head);
  one.seqlen_q = 1;
  Inputs inputs = make_inputs(one, InputKind::outliers, 3);
  std::fill_n(inputs.q.begin(), one.head_dim, 0.0f);  // a row of zeros has no largest element
  expect_right(one, inputs, kE4m3Cache);
}

// Long rows, whose probabilities are far below f16's range, with groups, several queries and a mask.
TEST_F(E4m3CacheTest, IsRightForLongRowsAndManyRows) {
  expect_right(e4m3_cache_of({8000, 1}, 64, Scaling::head),
               inputs_of_many_sizes(e4m3_cache_of({8000, 1}, 64, Scaling::head), 6), kE4m3Cache);
  for (const auto& [group, head_dim] : {std::pair(1, 64), {3, 128}, {8, 256}, {17, 64}, {64, 64}}) {
    Spec spec = e4m3_cache_of({70, 650}, head_dim, Scaling::head);
    spec.heads = 2 * group, spec.seqlen_q = 1 + group % 2 * 3;
    expect_right(spec, make_inputs(spec, InputKind::normal, group), kE4m3Cache);
  }
}

TEST_F(E4m3CacheTest, StaysWithinTheBoundsOfInputsThatHurt) {
  for (InputKind kind :
       {InputKind::outliers, InputKind::large_scores, InputKind::one_hot, InputKind::all_equal})
    for (DType dtype : {DType::bf16, DType::f16}) {
      const Spec spec = e4m3_cache_of({700, 33}, 64, Scaling::head, dtype);
      expect_right(spec, make_inputs(spec, kind, 3), kE4m3Cache);
    }
}

// A shared prefix uses the first sequence's pages, with their scales.
TEST_F(E4m3CacheTest, ReadsASharedPrefixOnce) {
  for (Scaling scaling : {Scaling::head, Scaling::block}) {
    Spec spec = e4m3_cache_of({300, 70, 66, 140}, 64, scaling);
    spec.paging = random_pages(spec, 32, 64, 1);
    expect_right(spec, make_inputs(spec, InputKind::normal, 3), kE4m3Cache);
  }
}

// The order of pages does not change a bit.
TEST_F(E4m3CacheTest, InPagesInAnyOrderGivesTheSameBits) {
  const Spec spec = e4m3_cache_of({0, 1, 300, 129}, 128, Scaling::tensor);
  const Inputs inputs = make_inputs(spec, InputKind::normal, 3);
  const std::vector<std::byte> want = bits_of(spec, inputs, kE4m3Cache);
  for (int rows : {1, 16, 128}) {
    const Spec paged = in_pages(spec, rows, 5);
    EXPECT_TRUE(bits_of(paged, scatter_pages(paged, inputs), kE4m3Cache) == want) << rows;
  }
}

TEST_F(E4m3CacheTest, GivesTheSameBitsInEveryLaunch) {
  expect_same_bits_of(e4m3_cache_of({2000, 1, 77, 0, 900}, 128, Scaling::head), kE4m3Cache, 3000);
}

TEST_F(E4m3CacheTest, OfRowsWithGapsIsRight) {
  for (Scaling scaling : {Scaling::head, Scaling::block}) {
    Spec spec = e4m3_cache_of({130, 1, 300}, 64, scaling);
    spec.layout = layout_bshd(spec);
    expect_right(spec, inputs_of_many_sizes(spec, 3), kE4m3Cache);
  }
}

TEST_F(E4m3CacheTest, UnderRandomOrdersOfWarpsIsRight) {
  for (int seed : {1, 2}) {
    const RandomWarpOrder order(seed);
    const Spec spec = in_pages(e4m3_cache_of({0, 700, 33}, 128, Scaling::block), 16, 1);
    expect_right(spec, inputs_of_many_sizes(spec, 3), kE4m3Cache);
  }
}

// ---- windows, functions on scores, and sinks

class RulesTest : public ChapterTest {};

/// Returns the first key that some query of a sequence sees: earlier keys need not exist.
int first_seen(const Spec& spec, int batch) {
  const int left = spec.visibility.window.left;
  return left < 0 ? 0 : std::max(spec.visibility.lengths[batch] - spec.seqlen_q - left, 0);
}

/// Writes NaN to every row that no query sees, after the last key and before the window.
void poison_hidden(const Spec& spec, Inputs& inputs) {
  poison_tails(spec, inputs);
  for (int batch = 0; batch < spec.batch; ++batch)
    for (int head = 0; head < spec.kv_heads; ++head)
      for (std::vector<float>* tensor : {&inputs.k, &inputs.v})
        std::fill_n(tensor->begin() + (int64_t(batch) * spec.kv_heads + head) * spec.seqlen_k * spec.head_dim,
                    int64_t(first_seen(spec, batch)) * spec.head_dim,
                    std::numeric_limits<float>::quiet_NaN());
}

/// Returns a slope and a sink for each head, as in models.
std::vector<float> slopes_of(int heads) {
  std::vector<float> slopes(heads);
  for (int head = 0; head < heads; ++head) slopes[head] = std::exp2(-8.0f * float(head + 1) / float(heads));
  return slopes;
}
std::vector<float> sinks_of(int heads, float first = -2) {
  std::vector<float> sinks(heads);
  for (int head = 0; head < heads; ++head) sinks[head] = first + float(head);
  sinks[heads / 2] = -std::numeric_limits<float>::infinity();  // no sink
  return sinks;
}

const ScoreFunction kFunctions[] = {{},
                                    {.softcap = 20},
                                    {.alibi = slopes_of(8)},
                                    {.sinks = sinks_of(8)},
                                    {.softcap = 3, .alibi = slopes_of(8), .sinks = sinks_of(8)}};

/// Runs all steps from 4 on without pages, and those that support pages with pages of `rows`. The table names
/// a page of NaN for every page that no query sees.
void expect_right_by_rules(const Spec& spec, const std::vector<int>& page_rows, uint64_t seed = 3) {
  const Inputs clean = make_inputs(spec, InputKind::normal, seed);
  Inputs inputs = clean;
  poison_hidden(spec, inputs);
  expect_right(spec, inputs, kRing);
  for (int rows : page_rows) {
    Spec paged = in_pages(spec, rows, seed);
    ++paged.paging.pages;  // unused, and NaN
    const Inputs scattered = scatter_pages(paged, inputs);
    const int of_sequence = paged.pages_of_sequence();
    for (int batch = 0; batch < spec.batch; ++batch)
      for (int page = 0; page < first_seen(spec, batch) / rows; ++page)
        paged.paging.table[batch * of_sequence + page] = paged.paging.pages - 1;
    const UploadedInputs uploaded(Operation::decode, paged, scattered, device::Place::device);
    const Reference reference = make_reference(spec, clean, all_rows(spec));
    for (int step : paged_steps()) {
      SCOPED_TRACE("step " + std::to_string(step) + ", " + describe(paged));
      if (step == kWarpgroups && rows < 8) continue;
      ASSERT_EQ(kDecoding.refusal(step, paged), "");
      const Call call(kDecoding, paged, uploaded, step);
      call.run();
      const CheckResult result = check(spec, reference, call.download());
      EXPECT_TRUE(result.o.ok) << result.o.worst << ", bound " << result.o.bound;
      EXPECT_TRUE(result.lse.ok) << result.lse.worst << ", bound " << result.lse.bound;
    }
  }
}

constexpr Window kWindows[] = {{.left = 0, .right = 0},
                               {.left = 127, .right = 0},
                               {.left = 300, .right = 0},
                               {.left = 40, .right = 1},
                               {.left = 90},
                               {.left = 1 << 30, .right = 1 << 30}};

// Windows within a tile, over several tiles, longer than any sequence, and unlimited on either side.
TEST_F(RulesTest, AWindowIsAllThatIsRead) {
  for (const Window& window : kWindows)
    for (int head_dim : {64, 128, 256}) {
      if (head_dim != 64 && window.left != 300) continue;
      Spec spec = cache_of({0, 1, 2, 127, 128, 129, 700}, head_dim);
      spec.visibility.window = window;
      expect_right_by_rules(spec, {16});
    }
}

TEST_F(RulesTest, FunctionsAndSinksGoWithLengthsPagesAndWindows) {
  for (const ScoreFunction& function : kFunctions)
    for (int head_dim : {64, 128, 256})
      for (const Window& window : {Window{.left = 70, .right = 0}, Window{}}) {
        const bool has_all = function.softcap > 0 && !function.sinks.empty();
        if (head_dim != 64 && (window.left < 0 || !has_all)) continue;
        Spec spec = cache_of({0, 1, 17, 129, 600}, head_dim);
        spec.dtype = head_dim == 128 ? DType::f16 : DType::bf16;
        spec.visibility.window = window;
        spec.score = function;
        expect_right_by_rules(spec, {window.left < 0 ? 64 : 16});
      }
}

// Sinks range from none to so large that the keys' weights are negligible. A row without keys has the sink as
// its log-sum-exp, and O = 0. The parts of a long sequence are merged first.
TEST_F(RulesTest, ASinkMayDominate) {
  for (float first : {-90.0f, 3.0f, 120.0f}) {
    Spec spec = cache_of({0, 1, 40, 2500});
    spec.score.sinks = sinks_of(8, first);
    expect_right_by_rules(spec, {16});
  }
  Spec spec = cache_of({0, 3});
  spec.score.sinks = std::vector<float>(8, 2.5f);
  const Outputs outputs = run_once(kDecoding, spec, make_inputs(spec, InputKind::normal, 5), kEqualWork);
  for (int row = 0; row < 16; ++row) {
    EXPECT_EQ(outputs.lse[row], 2.5f);
    for (int c = 0; c < 64; ++c) EXPECT_EQ(outputs.o[row * 64 + c], 0);
  }
}

// Many heads of a group, with different sinks and slopes, share a tile, or exceed it.
TEST_F(RulesTest, RowsOfATileHaveSinksAndSlopesOfTheirHeads) {
  for (int group : {1, 3, 16, 33, 70})
    for (int queries : {1, 3}) {
      Spec spec = cache_of({70, 150}, group % 2 == 0 ? 128 : 64);
      spec.heads = 2 * group, spec.seqlen_q = queries;
      spec.visibility.window = {.left = 50, .right = 0};
      spec.score = {.alibi = slopes_of(spec.heads), .sinks = sinks_of(spec.heads)};
      expect_right_by_rules(spec, {});
    }
}

// Tensors with any multiple of 8 columns, in tiles of 64, 128 and 256: with and without rules and pages, with
// contiguous rows and with other heads' rows between them, and with more rows than a tile has.
TEST_F(RulesTest, HeadDimensionsThatTilesPadAreRight) {
  for (int head_dim : {8, 40, 72, 96, 136, 192, 248}) {
    Spec spec = cache_of({0, 1, 17, 129, 600}, head_dim);
    spec.visibility.window.right = 0;
    expect_right_by_rules(spec, {16});
    if (head_dim == 40 || head_dim == 136) {
      spec.visibility.window.left = 70;
      spec.score = {.softcap = 3, .alibi = slopes_of(8), .sinks = sinks_of(8)};
      expect_right_by_rules(spec, {1, 64});
      spec.layout = layout_bshd(spec);
      expect_right(spec, make_inputs(spec, InputKind::normal, 3), kRing);
      spec.layout = {}, spec.heads = 66, spec.score = {};
      expect_right_by_rules(spec, {16});
    }
  }
}

// One sequence in enough parts that a second kernel merges them.
TEST_F(RulesTest, ManyPartsOfPaddedRowsAreMerged) {
  for (int head_dim : {96, 160}) {
    Spec spec = cache_of({9000}, head_dim);
    spec.heads = 1, spec.kv_heads = 1, spec.seqlen_q = 1;
    expect_right_by_rules(spec, {});
  }
}

/// Returns a problem with random windows, score functions and sizes.
Spec random_rules(std::mt19937& random) {
  const auto up_to = [&](int most) { return int(random() % unsigned(most + 1)); };
  std::vector<int> lengths(1 + up_to(4));
  for (int& length : lengths) length = up_to(2) == 0 ? up_to(3) : up_to(900);
  Spec spec = cache_of(lengths, 64 << up_to(1));
  spec.kv_heads = 1 << up_to(2), spec.seqlen_q = 1 + up_to(4);
  const int lefts[] = {-1, up_to(20), up_to(200), up_to(1500)};
  spec.visibility.window = {.left = lefts[up_to(3)], .right = up_to(3) - 1};
  if (up_to(2) == 0) spec.score.softcap = float(1 + up_to(40));
  if (up_to(2) == 0) spec.score.alibi = slopes_of(8);
  if (up_to(1) == 0) spec.score.sinks = sinks_of(8, float(up_to(12) - 10));
  return spec;
}

// The results hold for any order of warps and any time at which copies complete.
TEST_F(RulesTest, AnyRulesAreRightInAnyOrder) {
  std::mt19937 random(11);
  for (int seed = 0; seed < 12; ++seed) {
    const RandomWarpOrder order(seed);
    const InBackground background(std::array{Async::eager, Async::lazy, Async::random}[seed % 3], seed);
    expect_right_by_rules(random_rules(random), {16 << seed % 4}, seed);
  }
}

TEST_F(RulesTest, EveryLaunchWithRulesGivesTheSameBits) {
  Spec spec = cache_of({2000, 1, 77, 0, 900}, 128);
  spec.visibility.window = {.left = 1500, .right = 0};
  spec.score.sinks = sinks_of(8);
  for (int step : {kRing, kEqualWork, kBoxes, kWarpgroups}) expect_same_bits_of(spec, step, 1000);
}

// Under a rule, a shared prefix is read like other keys; a window hides it.
TEST_F(RulesTest, ASharedPrefixGoesWithRules) {
  for (int left : {-1, 30, 100}) {
    Spec spec = cache_of({300, 70, 66, 140});
    spec.paging = random_pages(spec, 32, 64, 1);
    spec.visibility.window.left = left;
    spec.score.sinks = sinks_of(8);
    validate(spec);
    expect_right(spec, make_inputs(spec, InputKind::normal, 3), kPages);
  }
}

// A sequence's keys may begin after some rows of its part of the cache, as given by a table from the caller.
TEST_F(RulesTest, PaddingsShiftTheKeys) {
  for (const bool one_page : {false, true}) {
    Spec spec = cache_of({60, 100, 0, 5});
    spec.visibility.window.left = 40;
    const Inputs inputs = make_inputs(spec, InputKind::normal, 3);
    const std::vector<int> paddings = {40, 0, 90, 13};
    Inputs moved = inputs;
    poison_hidden(spec, moved);
    for (std::vector<float>* tensor : {&moved.k, &moved.v})
      for (int64_t row = 0; row < spec.k_rows(); row += spec.seqlen_k) {
        const auto first = tensor->begin() + row * 64;
        std::rotate(first, first + int64_t(spec.seqlen_k - paddings[row / spec.seqlen_k / 2]) * 64,
                    first + int64_t(spec.seqlen_k) * 64);
      }
    Spec given = spec;
    if (one_page) given.paging = {.rows = spec.seqlen_k, .pages = 4, .table = {0, 1, 2, 3}};
    given.paging.paddings = paddings;
    const Outputs outputs = run_once(kDecoding, given, moved, kEqualWork);
    EXPECT_TRUE(check(spec, make_reference(spec, inputs, all_rows(spec)), outputs).ok());
    EXPECT_TRUE(check(given, make_reference(given, moved, all_rows(given)), outputs).ok());
  }
}

// Some sequences decode, others process a chunk of their prompt, and one is idle.
TEST_F(RulesTest, PackedQueriesReadTheirOwnSequences) {
  Spec like = cache_of({1});
  for (const bool by_token : {false, true})
    for (int rows : {0, 16}) {
      expect_packed_right(paged_steps(), {1, 40, 0, 1, 7, 1}, {300, 90, 50, 1, 7, 0}, like, rows, by_token);
      like.visibility.window.left = 33;
      like.score = {.softcap = 9, .alibi = slopes_of(8), .sinks = sinks_of(8)};
      expect_packed_right(paged_steps(), {0, 0, 3, 90, 1, 0}, {20, 0, 200, 90, 1500, 5}, like, rows,
                          by_token);
      like = cache_of({1}, by_token ? 128 : 256);
    }
  expect_packed_right(paged_steps(), {1, 0, 70}, {5000, 0, 700}, like, 64, true);
  like.batching.unsplit = true;
  expect_packed_right(paged_steps(), {1, 40, 0, 1, 7, 1}, {300, 90, 50, 1, 7, 0}, like, 16, true);
  like.batching.unsplit = false;
  expect_packed_right(paged_steps(), {1}, {9000}, like, 0,
                      false);  // too many parts for the last arriver to merge
}

class TracedCache : public ChapterTest {};

TEST_F(TracedCache, OfRulesBreaksNoRuleOfMemory) {
  Spec spec = cache_of({0, 1, 300, 170});
  spec.visibility.window.left = 77;
  spec.score = {.softcap = 5, .alibi = slopes_of(8), .sinks = sinks_of(8)};
  expect_right_by_rules(spec, {16});
  expect_packed_right(paged_steps(), {1, 20, 0, 1}, {200, 40, 9, 3}, spec, 16, true);
  spec.score = {.sinks = sinks_of(8)};
  expect_right_by_rules(spec, {64});
  spec.visibility = {.window = {.left = 600, .right = 0}, .lengths = {1200, 40}};
  spec.batch = 2, spec.seqlen_k = 1200;
  expect_right_by_rules(spec, {});
}

TEST_F(TracedCache, OfLatentKeysBreaksNoRuleOfMemory) {
  const Spec spec = in_pages(latent_of({0, 1, 200, 64}, 128), 64, 1);
  expect_right(spec, make_inputs(spec, InputKind::normal, 3));
}

TEST_F(TracedCache, OfListedKeysBreaksNoRuleOfMemory) {
  for (int step : {kSparsePrefill, kSparseDecode})
    for (const auto& [tokens, count] : {std::pair(3, 300), {1, 600}})
      expect_lists_right(lists_of(tokens, 70, 200, count, step), step);
}

TEST_F(TracedCache, InE4m3BreaksNoRuleOfMemory) {
  for (const Spec& spec : {in_pages(e4m3_cache_of({0, 1, 600, 17}, 64, Scaling::block), 16, 1),
                           e4m3_cache_of({0, 900, 130}, 64, Scaling::head)})
    expect_right(spec, inputs_of_many_sizes(spec, 3), kE4m3Cache);
}

TEST_F(TracedCache, OfPagesBreaksNoRuleOfMemory) {
  const Spec spec = in_pages(cache_of({0, 1, 300, 17}), 16, 1);
  expect_right(spec, scatter_pages(spec, make_inputs(without_pages(spec), InputKind::normal, 3)), kPages);
}

TEST_F(TracedCache, OfASharedPrefixBreaksNoRuleOfMemory) {
  Spec spec = cache_of({300, 70, 65, 140});
  spec.paging = random_pages(spec, 32, 64, 1);
  expect_right(spec, make_inputs(spec, InputKind::normal, 3), kEqualWork);
}

TEST_F(TracedCache, ByTokenBreaksNoRuleOfMemory) {
  Spec spec = cache_of({0, 900, 1, 130, 64});
  expect_right_by_token({kBoxes, kWarpgroups}, spec, 0);
  spec.seqlen_q = 20;
  expect_right_by_token({kWarpgroups}, spec, 16);
}

TEST_F(TracedCache, OfManySequencesBreaksNoRuleOfMemory) {
  const Spec spec = cache_of({0, 900, 1, 130, 0, 64});
  expect_right(spec, make_inputs(spec, InputKind::normal, 3));
}

}  // namespace
}  // namespace flashbook::testing

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/app/call.h"
#include "common/app/expected.h"
#include "common/app/report.h"
#include "common/attention/inputs.h"
#include "common/device/queue.h"
#include "common/features/pages/pages.h"
#include "library/chapters.h"
#include "library/flashbook.h"
#include "tests/require_gpu.h"
#include "tests/support/specs.h"

namespace flashbook {
namespace {

FlashbookShape small_shape() {
  FlashbookShape shape = {};
  shape.size = sizeof shape;
  shape.batch = shape.kv_heads = shape.causal = 1, shape.heads = 2;
  shape.seqlen_q = 33, shape.seqlen_k = 40, shape.head_dim = 64;
  shape.dtype = FLASHBOOK_F32, shape.scale = 0.125f;
  return shape;
}

/// Returns the small problem as a chapter's Spec.
Spec small_shape_of_the_house() { return testing::make_spec(33, 40, 64, true, DType::f32, 2, 1); }

/// Tensors that are never read, because every call with them is rejected first.
FlashbookTensors some_tensors() {
  alignas(256) static float memory[1];
  FlashbookTensors tensors = {};
  tensors.size = sizeof tensors;
  tensors.q = tensors.k = tensors.v = memory;
  tensors.o = tensors.workspace = memory, tensors.lse = memory;
  return tensors;
}

/// Gradients that are never read.
FlashbookGradients some_gradients() {
  FlashbookGradients gradients = {};
  gradients.size = sizeof gradients;
  gradients.d_o = some_tensors().q;
  gradients.dq = gradients.dk = gradients.dv = some_tensors().o;
  return gradients;
}

/// Returns a paged cache without paddings, whose sequences all have this many queries.
FlashbookCache cache_in_pages(const int32_t* lengths, const int32_t* page_table, int32_t page_rows,
                              int32_t pages, int32_t shared_keys = 0) {
  FlashbookCache cache = {};
  cache.size = sizeof cache;
  cache.lengths = lengths, cache.page_table = page_table;
  cache.page_rows = page_rows, cache.pages = pages, cache.shared_keys = shared_keys;
  return cache;
}

/// Returns the C interface's description of a test's tensor.
FlashbookCache cache_in_pages(const Tensors& t, int32_t page_rows, int32_t pages, int32_t shared_keys = 0) {
  const auto ints = [&](TableId id) { return static_cast<const int32_t*>(t.tables[int(id)]); };
  return cache_in_pages(ints(TableId::lengths), ints(TableId::page_table), page_rows, pages, shared_keys);
}

/// Returns the number of chapter 8's step for ragged caches.
int equal_work() { return flashbook_step(8, "equal_work"); }

bool last_error_has(const std::string& part) {
  return std::string(flashbook_last_error()).find(part) != std::string::npos;
}

void expect_refused(int chapter, int step, const FlashbookShape* shape, const FlashbookTensors* tensors,
                    const std::string& because) {
  EXPECT_EQ(flashbook_attention(chapter, step, shape, tensors, nullptr), FLASHBOOK_BAD_ARGUMENT) << because;
  EXPECT_TRUE(last_error_has(because)) << flashbook_last_error();
}

TEST(CInterface, NamesAStepThatDoesNotExist) {
  EXPECT_EQ(flashbook_step(3, "two_stages"), 0);
  EXPECT_TRUE(last_error_has("no step 'two_stages': give keys_outside, queries_outside or split_k"));
  EXPECT_EQ(flashbook_step(99, "tuned"), 0);
  EXPECT_TRUE(last_error_has("unknown chapter 99"));
  EXPECT_EQ(flashbook_step(3, nullptr), 0);
}

TEST(CInterface, ListsEveryChapterAndStep) {
  ASSERT_EQ(flashbook_chapter_count(), int(all_chapters().size()));
  for (int place = 0; place < flashbook_chapter_count(); ++place) {
    FlashbookChapter chapter = {};
    ASSERT_EQ(flashbook_chapter(place, &chapter), FLASHBOOK_OK);
    EXPECT_EQ(chapter.number, place + 1);
    EXPECT_STREQ(chapter.name, all_chapters()[place]->name);
    EXPECT_GE(chapter.steps, 1);
    for (int step = 1; step <= chapter.steps; ++step) {
      EXPECT_NE(flashbook_step_name(chapter.number, step), nullptr);
      EXPECT_EQ(flashbook_step(chapter.number, flashbook_step_slug(chapter.number, step)), step);
    }
    EXPECT_EQ(flashbook_step_name(chapter.number, chapter.steps + 1), nullptr);
    EXPECT_EQ(flashbook_step_slug(chapter.number, chapter.steps + 1), nullptr);
  }
  EXPECT_EQ(flashbook_chapter(-1, nullptr), FLASHBOOK_BAD_ARGUMENT);
  FlashbookChapter chapter;
  EXPECT_EQ(flashbook_chapter(flashbook_chapter_count(), &chapter), FLASHBOOK_BAD_ARGUMENT);
  EXPECT_EQ(flashbook_chapter(0, nullptr), FLASHBOOK_BAD_ARGUMENT);
}

TEST(CInterface, RefusesBadArgumentsAndSaysWhy) {
  const FlashbookShape shape = small_shape();
  const FlashbookTensors tensors = some_tensors();
  expect_refused(99, 1, &shape, &tensors, "unknown chapter 99");
  expect_refused(1, 0, &shape, &tensors, "no step 0");
  expect_refused(1, 99, &shape, &tensors, "no step 99");
  expect_refused(1, 1, nullptr, &tensors, "shape is null");
  expect_refused(1, 1, &shape, nullptr, "tensors is null");

  FlashbookShape wrong = shape;
  wrong.dtype = 7;
  expect_refused(1, 1, &wrong, &tensors, "dtype is 7");
  wrong.dtype = FLASHBOOK_E4M3;
  expect_refused(1, 1, &wrong, &tensors, "does not support e4m3");
  wrong = shape;
  wrong.scaling = 3;
  expect_refused(1, 1, &wrong, &tensors, "scaling is 3");
  wrong = shape;
  wrong.scale = 0;
  expect_refused(1, 1, &wrong, &tensors, "scale");
  wrong = shape;
  for (const int32_t head_dim : {80, 100, 264}) {
    wrong.head_dim = head_dim;
    expect_refused(1, 1, &wrong, &tensors, head_dim == 80 ? "head dimensions other than" : "head_dim");
  }
  wrong.head_dim = 64;
  wrong.value_dim = 7;
  expect_refused(1, 1, &wrong, &tensors, "value_dim 7 is not supported");
  wrong.value_dim = 128;
  expect_refused(1, 1, &wrong, &tensors, "values that are wider or narrower than keys");
  wrong = shape;
  wrong.heads = -1;
  expect_refused(1, 1, &wrong, &tensors, "heads");

  wrong = shape;
  wrong.size = 40;
  expect_refused(1, 1, &wrong, &tensors, "shape.size is 40");
  wrong = shape;
  wrong.k = {.batch = 40 * 64, .head = 40 * 64, .row = 64 + 2};
  expect_refused(1, 1, &wrong, &tensors, "row stride of k is 66");
  wrong.k.row = 64;  // strides contradict [batch, heads, seqlen, head_dim]
  wrong.k.batch = wrong.k.head = 41 * 64;
  expect_refused(1, 1, &wrong, &tensors, "layouts other than [batch, heads, seqlen, head_dim]");

  // Chapters 3 and 4 load 16 bytes at a time: an unaligned load would fault and destroy the context.
  for (const void* FlashbookTensors::*input :
       {&FlashbookTensors::q, &FlashbookTensors::k, &FlashbookTensors::v}) {
    FlashbookTensors shifted = tensors;
    shifted.*input = static_cast<const char*>(tensors.q) + 8;
    expect_refused(1, 1, &shape, &shifted, "is not aligned: pass an address that is a multiple of 16");
  }
  FlashbookTensors shifted = tensors;
  shifted.o = static_cast<char*>(tensors.o) + 8;
  expect_refused(1, 1, &shape, &shifted, "o is not aligned");
  shifted = tensors;
  shifted.workspace = static_cast<char*>(tensors.o) + 16;
  expect_refused(1, 1, &shape, &shifted, "workspace is not aligned");

  shifted = tensors;
  shifted.k_mean = static_cast<const float*>(tensors.q) + 1;
  expect_refused(1, 1, &shape, &shifted, "k_mean is not aligned");

  FlashbookTensors null = tensors;
  null.lse = nullptr;
  expect_refused(1, 1, &shape, &null, "lse");
  null = tensors;
  null.workspace = nullptr;
  expect_refused(1, 1, &shape, &null, "workspace is null");
}

TEST(CInterface, WorkspaceAndCostAreTheChapters) {
  const FlashbookShape shape = small_shape();
  EXPECT_GT(flashbook_workspace_bytes(1, 1, &shape), 0);
  EXPECT_STREQ(flashbook_last_error(), "");
  EXPECT_EQ(flashbook_workspace_bytes(1, 9, &shape), -1);
  EXPECT_TRUE(last_error_has("no step 9"));

  double flops = 0, bytes = 0;
  ASSERT_EQ(flashbook_cost(1, 2, &shape, &flops, &bytes), FLASHBOOK_OK);
  EXPECT_EQ(flops, 4.0 * 64 * (33 * (8 + 40) / 2) * 2);  // query i sees 8 + i keys
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(flashbook_cost(1, 2, &shape, nullptr, &bytes), FLASHBOOK_BAD_ARGUMENT);
}

TEST(CInterface, EachThreadHasItsOwnLastError) {
  EXPECT_EQ(flashbook_workspace_bytes(99, 1, nullptr), -1);
  std::thread([] { EXPECT_STREQ(flashbook_last_error(), ""); }).join();
  EXPECT_TRUE(last_error_has("unknown chapter 99"));
}

// The structs before scales and means were added.
TEST(CInterface, TakesTheStructsOfTheFirstHeader) {
  FlashbookShape shape = small_shape();
  shape.size = offsetof(FlashbookShape, scaling);
  EXPECT_EQ(shape.size, 144u);
  shape.scaling = 99;  // past the end of the caller's struct: must not be read
  EXPECT_GT(flashbook_workspace_bytes(1, 1, &shape), 0);
  FlashbookTensors tensors = some_tensors();
  tensors.size = offsetof(FlashbookTensors, q_scale);
  EXPECT_EQ(tensors.size, 56u);
  tensors.k_mean = reinterpret_cast<const float*>(1);
  tensors.lse = nullptr;
  expect_refused(1, 1, &shape, &tensors, "lse");
  tensors.size -= 8;
  expect_refused(1, 1, &shape, &tensors, "tensors.size is 48");
}

constexpr int32_t kLeast = std::numeric_limits<int32_t>::min(), kMax = std::numeric_limits<int32_t>::max();

/// A call of the C interface, and whether it has an error that every chapter must report.
struct OddCall {
  int chapter = 1, step = 1;
  FlashbookShape shape = small_shape();
  FlashbookTensors tensors = some_tensors();
  FlashbookCache cache = cache_in_pages(nullptr, nullptr, 16, 8);
  FlashbookGradients gradients = some_gradients();
  FlashbookMask mask = {};
  bool has_shape = true, has_tensors = true, is_wrong = false;
};

/// Draws calls from a seed, with some unusual values; if `wrong`, with an error.
class OddCalls {
 public:
  explicit OddCalls(unsigned seed) : random_(seed) {}

  OddCall draw(bool wrong) {
    OddCall call;
    call.mask.size = sizeof(FlashbookMask);
    call.mask.window_left = call.mask.window_right = -1;
    call.chapter = 1 + below(flashbook_chapter_count());
    call.step = 1 + below(3);
    call.shape.causal = below(2);
    call.shape.dtype = one_of<int32_t>(FLASHBOOK_F32, FLASHBOOK_F16, FLASHBOOK_BF16, FLASHBOOK_E4M3);
    for (int changes = below(4); changes > 0; --changes) make_odd(call);
    while (wrong && !call.is_wrong) make_wrong(call);
    return call;
  }

  int below(int count) { return int(random_() % unsigned(count)); }

 private:
  template <typename T, typename... Values>
  T one_of(Values... values) {
    const T all[] = {T(values)...};
    return all[below(int(std::size(all)))];
  }

  /// A value that may be valid or too large.
  void make_odd(OddCall& call) {
    FlashbookShape& s = call.shape;
    const int32_t many = one_of<int32_t>(1, 3, 16, 1000, 65536, kMax - 1, kMax);
    const std::function<void()> changes[] = {
        [&] { s.batch = many; },
        [&] { s.heads = s.kv_heads = many; },
        [&] { s.seqlen_q = many; },
        [&] { s.seqlen_k = many; },
        [&] { s.head_dim = one_of<int32_t>(40, 64, 80, 128, 200, 256, 576); },
        [&] { s.scale = one_of<float>(1e-45f, 1e-3f, 1, 3e38f); },
        [&] { s.scaling = below(3); },
        [&] {
          static const int32_t entries[4] = {};
          FlashbookMask& m = call.mask;
          m.window_left = one_of<int32_t>(-1, 0, 7, kMax);
          m.sinks = m.prefix = one_of<int32_t>(0, 5, kMax);
          m.documents = many, m.first_query = m.first_key = entries;
          m.columns = one_of<const int32_t*>(nullptr, entries);
          m.column_heads = one_of<int32_t>(0, 1, kMax), m.bounds = one_of<int32_t>(0, 1, 2, 4, kMax);
          m.block_queries = m.block_keys = one_of<int32_t>(0, 16, 64, kMax);
          m.first_block = m.key_blocks = entries;
          m.softcap = one_of<float>(0, 30, NAN, -1), m.dropout = one_of<float>(0, 0.1f, 1, NAN);
          static const float distances[1] = {};
          m.bias = one_of<const float*>(nullptr, distances),
          m.bias_reach = one_of<int32_t>(kLeast, -1, 0, kMax);
        },
        [&] {
          call.cache.page_table = one_of<const int32_t*>(nullptr, &s.scaling);
          call.cache.page_rows = one_of<int32_t>(kLeast, -1, 0, 1, 16, kMax);
          call.cache.pages = one_of<int32_t>(kLeast, 0, 1, kMax);
        }};
    changes[below(int(std::size(changes)))]();
  }

  void make_wrong(OddCall& call) {
    call.is_wrong = true;
    FlashbookShape& s = call.shape;
    FlashbookTensors& t = call.tensors;
    const int32_t bad = one_of<int32_t>(0, -1, kLeast);
    const auto shift = [&](const void* from) { return static_cast<const char*>(from) + 1 + below(15); };
    const std::function<void()> changes[] = {
        [&] { call.chapter = one_of<int>(0, -1, 99, int(kMax), int(kLeast)); },
        [&] { call.step = one_of<int>(0, -1, 99, int(kMax), int(kLeast)); },
        [&] { call.has_shape = false; },
        [&] { call.has_tensors = false; },
        [&] { s.size = one_of<std::size_t>(0, 1, sizeof s + 8, ~std::size_t(0)); },
        [&] { t.size = one_of<std::size_t>(0, 1, sizeof t + 8, ~std::size_t(0)); },
        [&] { s.batch = bad; },
        [&] { s.heads = bad; },
        [&] { s.kv_heads = one_of<int32_t>(0, -1, 3, kLeast, kMax), s.heads = 2; },
        [&] { s.seqlen_q = bad; },
        [&] { s.seqlen_k = bad; },
        [&] { s.head_dim = one_of<int32_t>(0, -64, 1, 100, 4096, kMax, kLeast); },
        [&] { s.dtype = one_of<int32_t>(-1, 4, kMax, kLeast); },
        [&] { s.scale = one_of<float>(0, -1, NAN, -INFINITY, INFINITY); },
        [&] { s.scaling = one_of<int32_t>(-1, 3, kMax, kLeast); },
        [&] { t.q = one_of<const void*>(nullptr, shift(t.q)); },
        [&] { t.o = const_cast<char*>(one_of<const char*>(nullptr, shift(t.o))); },
        [&] {
          FlashbookStrides& of = one_of<FlashbookStrides*>(&s.q, &s.k, &s.o)[0];
          const int64_t step = one_of<int64_t>(-64, 1, 65, std::numeric_limits<int64_t>::min());
          of = {.batch = step, .head = step, .row = step};
        }};
    changes[below(int(std::size(changes)))]();
  }

  std::mt19937 random_;
};

/// A failed call gives its reason in one printable line that names no command-line option; a successful one
/// has no message.
void expect_one_line(bool failed, const std::string& call) {
  const std::string said = flashbook_last_error();
  EXPECT_EQ(failed, !said.empty()) << call;
  EXPECT_LT(said.size(), 1000u) << call;
  for (const char* part : {"\n", "std::", "bad_alloc", "vector::", "basic_string", "--"})
    EXPECT_EQ(said.find(part), said.npos) << call << ": " << said;
}

/// Set FLASHBOOK_HOSTILE_CALLS and FLASHBOOK_HOSTILE_SEED for more calls and another seed.
int from_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

TEST(CInterface, RefusesTheWrongCallsOfAGenerator) {
  OddCalls calls(unsigned(from_environment("FLASHBOOK_HOSTILE_SEED", 1)));
  for (int i = 0; i < from_environment("FLASHBOOK_HOSTILE_CALLS", 1000); ++i) {
    const OddCall call = calls.draw(true);
    const FlashbookShape* shape = call.has_shape ? &call.shape : nullptr;
    const FlashbookTensors* tensors = call.has_tensors ? &call.tensors : nullptr;
    const std::string name = "call " + std::to_string(i);
    const auto expect = [&](int status) {
      EXPECT_EQ(status, FLASHBOOK_BAD_ARGUMENT) << name << ": " << flashbook_last_error();
      expect_one_line(true, name);
    };
    expect(flashbook_attention(call.chapter, call.step, shape, tensors, nullptr));
    expect(flashbook_decode(call.chapter, call.step, shape, &call.cache, tensors, nullptr));
    expect(flashbook_backward(call.chapter, call.step, shape, tensors, &call.gradients, nullptr));
    expect(flashbook_masked(call.chapter, call.step, shape, &call.mask, tensors, nullptr));
    expect(
        flashbook_masked_decode(call.chapter, call.step, shape, &call.cache, &call.mask, tensors, nullptr));
  }
}

TEST(CInterface, AnswersTheOddQuestionsOfAGenerator) {
  OddCalls calls(unsigned(from_environment("FLASHBOOK_HOSTILE_SEED", 1)));
  for (int i = 0; i < from_environment("FLASHBOOK_HOSTILE_CALLS", 1000); ++i) {
    const OddCall call = calls.draw(calls.below(2) == 0);
    const FlashbookShape* shape = call.has_shape ? &call.shape : nullptr;
    const std::string name = "call " + std::to_string(i);
    const int64_t bytes = flashbook_workspace_bytes(call.chapter, call.step, shape);
    expect_one_line(bytes < 0, name);
    expect_one_line(flashbook_masked_workspace_bytes(call.chapter, call.step, shape, &call.mask) < 0, name);
    expect_one_line(flashbook_decode_workspace_bytes(call.chapter, call.step, shape, &call.cache) < 0, name);
    expect_one_line(
        flashbook_masked_decode_workspace_bytes(call.chapter, call.step, shape, &call.cache, &call.mask) < 0,
        name);
    double flops = -1, moved = -1;
    const int status = flashbook_cost(call.chapter, call.step, shape, &flops, &moved);
    expect_one_line(status != FLASHBOOK_OK, name);
    EXPECT_EQ(status == FLASHBOOK_OK, bytes >= 0) << name;
    if (status == FLASHBOOK_OK) {
      EXPECT_TRUE(flops >= 0 && moved >= 0 && flops < INFINITY && moved < INFINITY)
          << name << ": " << flops << " FLOPs, " << moved << " bytes, chapter " << call.chapter;
    }
  }
}

// The arrays of a mask or a cache have the length that the caller gives; no machine has this much memory.
TEST(CInterface, RefusesTablesThatNobodyCanHold) {
  FlashbookShape shape = small_shape();
  shape.dtype = FLASHBOOK_BF16, shape.causal = 0;
  static const int32_t entries[4] = {};
  const FlashbookTensors tensors = some_tensors();
  FlashbookMask mask = {};
  mask.size = sizeof mask, mask.window_left = mask.window_right = -1;
  const auto expect_masked = [&](const std::string& because) {
    EXPECT_EQ(flashbook_masked(9, 1, &shape, &mask, &tensors, nullptr), FLASHBOOK_BAD_ARGUMENT) << because;
    EXPECT_TRUE(last_error_has(because)) << flashbook_last_error();
  };
  mask.documents = kMax, mask.first_query = mask.first_key = entries;
  expect_masked("documents");
  mask.documents = 2, mask.first_key = nullptr;
  expect_masked("first_key is null");
  mask.documents = 0, mask.first_query = nullptr;
  mask.columns = entries, mask.column_heads = kMax, mask.bounds = kMax;
  expect_masked("bounds");
  mask.columns = nullptr, mask.block_queries = mask.block_keys = 64, mask.first_block = entries;
  expect_masked("key_blocks is null");

  FlashbookCache cache = cache_in_pages(nullptr, entries, 16, 8);
  shape.seqlen_q = 1, shape.batch = 4, shape.seqlen_k = kMax, cache.page_rows = 1;
  EXPECT_EQ(flashbook_decode(8, 6, &shape, &cache, &tensors, nullptr), FLASHBOOK_BAD_ARGUMENT);
  EXPECT_TRUE(last_error_has("2^30 keys")) << flashbook_last_error();
  cache.page_table = nullptr, cache.shared_keys = 16;
  EXPECT_EQ(flashbook_decode(8, 1, &shape, &cache, &tensors, nullptr), FLASHBOOK_BAD_ARGUMENT);
  EXPECT_TRUE(last_error_has("shared_keys")) << flashbook_last_error();
  cache.shared_keys = 0, cache.first_query = entries;
  EXPECT_EQ(flashbook_decode(8, 6, &shape, &cache, &tensors, nullptr), FLASHBOOK_BAD_ARGUMENT);
  EXPECT_TRUE(last_error_has("queries is 0")) << flashbook_last_error();
}

class CInterfaceOnMachine : public MachineTest {};

FlashbookTensors tensors_of(const Tensors& t) {
  return {.size = sizeof(FlashbookTensors),
          .q = t.q,
          .k = t.k,
          .v = t.v,
          .o = t.o,
          .lse = t.lse,
          .workspace = t.workspace,
          .q_scale = t.q_scale,
          .k_scale = t.k_scale,
          .v_scale = t.v_scale,
          .k_mean = t.k_mean,
          .v_mean = t.v_mean};
}

// Each field matters: without it the outputs differ.
TEST_F(CInterfaceOnMachine, CarriesScalesAndMeans) {
  FlashbookShape given = small_shape();
  given.dtype = FLASHBOOK_E4M3;
  given.scaling = FLASHBOOK_SCALE_OF_HEAD;
  given.seqlen_q = given.seqlen_k = 200, given.batch = 2, given.heads = given.kv_heads = 2;
  Spec spec{{.batch = 2, .heads = 2, .kv_heads = 2, .seqlen_q = 200, .seqlen_k = 200, .dtype = DType::e4m3},
            Visibility::causal()};
  spec.e4m3 = {.scaling = Scaling::head, .mean_subtracted = true};
  const Inputs inputs = make_inputs(spec, InputKind::channels, 1);
  const Chapter& chapter = *chapter_numbered(6);
  const UploadedInputs uploaded(Operation::forward, spec, inputs, device::Place::device);
  const auto run = [&](auto change) {
    const Call call(Operation::forward, spec, uploaded, flashbook_workspace_bytes(6, 2, &given),
                    [&](const Tensors& t) {
                      FlashbookTensors tensors = tensors_of(t);
                      change(tensors);
                      ASSERT_EQ(flashbook_attention(6, 2, &given, &tensors, nullptr), FLASHBOOK_OK)
                          << flashbook_last_error();
                    });
    call.run();
    return call.download_bytes();
  };
  const auto whole = run([](FlashbookTensors&) {});
  EXPECT_TRUE(whole == [&] {
    const Call call(chapter, spec, uploaded, 2);
    call.run();
    return call.download_bytes();
  }());
  for (const float* FlashbookTensors::*part :
       {&FlashbookTensors::q_scale, &FlashbookTensors::k_scale, &FlashbookTensors::v_scale,
        &FlashbookTensors::k_mean, &FlashbookTensors::v_mean})
    EXPECT_FALSE(run([&](FlashbookTensors& tensors) { tensors.*part = nullptr; }) == whole);
}

TEST_F(CInterfaceOnMachine, ComputesWhatTheChapterDoes) {
  const FlashbookShape given = small_shape();
  const Spec spec = small_shape_of_the_house();
  const Inputs inputs = make_inputs(spec, InputKind::normal, 1);
  const UploadedInputs uploaded(Operation::forward, spec, inputs, device::Place::device);
  for (int step = 1; step <= int(all_chapters()[0]->steps.size()); ++step) {
    if (!all_chapters()[0]->refusal(step, spec).empty()) continue;  // the tensor cores have no FP32
    const Call call(Operation::forward, spec, uploaded, flashbook_workspace_bytes(1, step, &given),
                    [&](const Tensors& t) {
                      const FlashbookTensors tensors = tensors_of(t);
                      ASSERT_EQ(flashbook_attention(1, step, &given, &tensors, nullptr), FLASHBOOK_OK)
                          << flashbook_last_error();
                    });
    call.run();
    const Outputs got = call.download(), want = run_once(*all_chapters()[0], spec, inputs, step);
    EXPECT_EQ(got.o, want.o) << "step " << step;
    EXPECT_EQ(got.lse, want.lse) << "step " << step;
  }
}

TEST_F(CInterfaceOnMachine, LendsDeviceMemory) {
  void* const memory = flashbook_allocate(1000);
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 256, 0u);
  flashbook_free(memory);
  flashbook_free(nullptr);
  EXPECT_EQ(flashbook_allocate(std::size_t(1) << 60), nullptr);
  EXPECT_TRUE(last_error_has("1152921504606846976 bytes") || last_error_has("memory"))
      << flashbook_last_error();
}

// Lengths and pages are only in device memory: the problem does not contain them. With and without a shared
// prefix.
TEST_F(CInterfaceOnMachine, DecodesAgainstPages) {
  const int kStep = equal_work();
  constexpr int kBatch = 3, kKeys = 200, kRows = 16;
  FlashbookShape given = small_shape();
  given.batch = kBatch, given.heads = 4, given.kv_heads = 2, given.seqlen_q = 1, given.seqlen_k = kKeys;
  given.causal = 0, given.dtype = FLASHBOOK_BF16;
  Spec spec = {{.batch = kBatch,
                .heads = 4,
                .kv_heads = 2,
                .seqlen_q = 1,
                .seqlen_k = kKeys,
                .head_dim = 64,
                .dtype = DType::bf16,
                .scale = 0.125f},
               {.lengths = {0, 130, kKeys}}};
  for (int shared : {0, kRows}) {
    spec.visibility.lengths[0] = shared;
    spec.paging = random_pages(spec, kRows, shared, 1);
    const Inputs inputs = make_inputs(spec, InputKind::normal, 1);
    const UploadedInputs uploaded(Operation::decode, spec, inputs, device::Place::device);
    const Outputs want = run_once(*chapter_numbered(8), spec, inputs, kStep);

    const int64_t bytes = flashbook_workspace_bytes(8, kStep, &given);
    device::Buffer workspace(device::Place::device, bytes);
    workspace.upload(std::vector<std::byte>(bytes));
    const Call call(Operation::decode, spec, uploaded, 0, [&](const Tensors& t) {
      const FlashbookCache cache = cache_in_pages(t, kRows, spec.paging.pages, shared);
      FlashbookTensors tensors = tensors_of(t);
      tensors.workspace = workspace.data();
      EXPECT_EQ(flashbook_decode(8, 4, &given, &cache, &tensors, nullptr), FLASHBOOK_BAD_ARGUMENT);
      EXPECT_TRUE(last_error_has("pages")) << flashbook_last_error();
      FlashbookShape strided = given;  // its strides are between pages, not between sequences
      strided.k = strided.v = {.batch = 2 * kRows * 64, .head = kRows * 64, .row = 64};
      EXPECT_EQ(flashbook_decode_workspace_bytes(8, kStep, &strided, &cache), bytes);
      FlashbookCache other = cache;
      other.page_rows = 24, other.shared_keys = 0;
      EXPECT_EQ(flashbook_decode_workspace_bytes(8, kStep, &given, &other), -1);
      EXPECT_TRUE(last_error_has("pages")) << flashbook_last_error();
      EXPECT_EQ(flashbook_decode_workspace_bytes(8, kStep, &given, nullptr), bytes);
      ASSERT_EQ(flashbook_decode(8, kStep, &strided, &cache, &tensors, nullptr), FLASHBOOK_OK)
          << flashbook_last_error();
    });
    call.run();
    const Outputs got = call.download();
    EXPECT_EQ(got.o, want.o);
    EXPECT_EQ(got.lse, want.lse);
  }
}

// A repeated call is not checked again; one that differs in a field is.
TEST_F(CInterfaceOnMachine, RefusesWhatDiffersFromACallThatWasTaken) {
  const int kStep = equal_work();
  static constexpr int kBatch = 2, kKeys = 64, kRows = 16;
  const Spec spec = [] {
    Spec some = testing::make_spec(1, kKeys, 64, false, DType::bf16, 4, 2);
    some.batch = kBatch, some.visibility.lengths = {kKeys, 40};
    some.paging = random_pages(some, kRows, 0, 1);
    return some;
  }();
  FlashbookShape good = small_shape();
  good.batch = kBatch, good.heads = 4, good.kv_heads = 2, good.seqlen_q = 1, good.seqlen_k = kKeys;
  good.causal = 0, good.dtype = FLASHBOOK_BF16;
  const UploadedInputs uploaded(Operation::decode, spec, make_inputs(spec, InputKind::normal, 1),
                                device::Place::device);
  const int64_t bytes = flashbook_workspace_bytes(8, kStep, &good);
  device::Buffer workspace(device::Place::device, bytes);
  workspace.upload(std::vector<std::byte>(bytes));
  const Call call(Operation::decode, spec, uploaded, 0, [&](const Tensors& t) {
    const FlashbookCache pages = cache_in_pages(t, kRows, spec.paging.pages);
    FlashbookTensors tensors = tensors_of(t);
    tensors.workspace = workspace.data();
    const auto status = [&](const FlashbookShape& given, const FlashbookCache& cache,
                            const FlashbookTensors& by, int step = equal_work()) {
      return flashbook_decode(8, step, &given, &cache, &by, nullptr);
    };
    const auto refuse = [&](const FlashbookShape& given, const FlashbookCache& cache,
                            const FlashbookTensors& by, const char* because, int step = equal_work()) {
      ASSERT_EQ(status(good, pages, tensors), FLASHBOOK_OK) << flashbook_last_error();
      EXPECT_EQ(status(given, cache, by, step), FLASHBOOK_BAD_ARGUMENT) << because;
      EXPECT_TRUE(last_error_has(because)) << flashbook_last_error();
    };
    const auto but = [](auto from, auto change) {
      change(from);
      return from;
    };
    refuse(but(good, [](auto& s) { s.kv_heads = 3; }), pages, tensors, "heads");
    refuse(but(good, [](auto& s) { s.head_dim = 60; }), pages, tensors, "head_dim");
    refuse(but(good, [](auto& s) { s.scale = 0; }), pages, tensors, "scale");
    refuse(but(good, [](auto& s) { s.dtype = FLASHBOOK_F32; }), pages, tensors, "dtype");
    refuse(but(good, [](auto& s) { s.scaling = 3; }), pages, tensors, "scaling");
    refuse(but(good, [](auto& s) { s.q = {.batch = 256, .head = 64, .row = 3}; }), pages, tensors, "stride");
    refuse(good, but(pages, [](auto& c) { c.splits = 2; }), tensors, "splits");
    refuse(good, but(pages, [](auto& c) { c.page_rows = 24; }), tensors, "pages");
    refuse(good, but(pages, [](auto& c) { c.paddings = c.lengths; }), tensors, "paddings");
    refuse(good, pages, tensors, "pages", 4);
    // The memory of checked calls excludes pointers.
    refuse(good, pages, but(tensors, [](auto& all) { all.q = nullptr; }), "q is null");
    refuse(good, pages, but(tensors, [](auto& all) { all.workspace = nullptr; }), "workspace is null");
    const auto shifted = [](auto* pointer) {
      return reinterpret_cast<decltype(pointer)>(std::uintptr_t(pointer) + 2);
    };
    refuse(good, pages, but(tensors, [&](auto& all) { all.k = shifted(all.k); }), "k is not aligned");
    refuse(good, but(pages, [&](auto& c) { c.lengths = shifted(c.lengths); }), tensors,
           "lengths is not aligned");
    // Without one of its arrays, a call is a different one.
    const FlashbookCache none = but(pages, [](auto& c) { c.page_table = nullptr; });
    refuse(good, but(none, [](auto& c) { c.shared_keys = kRows; }), tensors, "shared_keys");
    // Makes more calls than the memory of checked calls holds.
    for (int keys = kKeys; keys > kKeys - 20; --keys)
      EXPECT_EQ(status(but(good, [&](auto& s) { s.seqlen_k = keys; }), pages, tensors), FLASHBOOK_OK) << keys;
    ASSERT_EQ(status(good, pages, tensors), FLASHBOOK_OK) << flashbook_last_error();
  });
  call.run();
  const Outputs want = run_once(*chapter_numbered(8), spec, make_inputs(spec, InputKind::normal, 1), kStep);
  EXPECT_EQ(call.download().o, want.o);
}

/// Returns a caller's description of a mask, with its tables in device memory.
FlashbookMask mask_of(const Spec& spec, const Tensors& t) {
  const Visibility& v = spec.visibility;
  const auto ints = [&](TableId id) { return static_cast<const int32_t*>(t.tables[int(id)]); };
  const auto floats = [&](TableId id) { return static_cast<const float*>(t.tables[int(id)]); };
  return {.size = sizeof(FlashbookMask),
          .window_left = v.window.left,
          .window_right = v.window.right,
          .sinks = v.window.sinks,
          .prefix = v.prefix,
          .documents = std::max(int32_t(v.documents.first_query.size()) - 1, 0),
          .slope_sequences = spec.score.alibi.size() > std::size_t(spec.heads)
                                 ? int32_t(spec.score.alibi.size() / std::size_t(spec.heads))
                                 : 0,
          .first_query = ints(TableId::document_query),
          .first_key = ints(TableId::document_key),
          .columns = ints(TableId::columns),
          .column_heads = v.columns.heads,
          .bounds = v.columns.bounds,
          .block_queries = v.blocks.queries,
          .block_keys = v.blocks.keys,
          .first_block = ints(TableId::block_first),
          .key_blocks = ints(TableId::block_keys),
          .slopes = floats(TableId::slopes),
          .softcap = spec.score.softcap,
          .bias_reach = spec.score.bias.reach,
          .bias = floats(TableId::bias),
          .seed = spec.score.seed,
          .dropout = spec.score.dropout,
          .pair_heads = v.dense.empty() ? 0 : v.dense.heads,
          .pairs = static_cast<const uint8_t*>(t.tables[int(TableId::dense)]),
          .sink_logits = floats(TableId::sinks)};
}

// Each field matters: the outputs equal the chapter's bit for bit.
TEST_F(CInterfaceOnMachine, MasksAndFunctionsAreTheChapters) {
  FlashbookShape given = small_shape();
  given.causal = 0, given.dtype = FLASHBOOK_BF16;
  Spec plain = small_shape_of_the_house();
  plain.visibility = {}, plain.dtype = DType::bf16;
  const auto under = [&](Visibility visibility, ScoreFunction score = {}) {
    Spec spec = plain;
    spec.visibility = std::move(visibility), spec.score = std::move(score);
    return spec;
  };
  const auto with_value_dim = [](Spec spec, int value_dim) {
    spec.value_dim = value_dim;
    return spec;
  };
  std::vector<unsigned char> pairs(33 * 40);
  for (std::size_t i = 0; i < pairs.size(); ++i) pairs[i] = i % 3 != 0;
  const std::pair<int, Spec> calls[] = {
      {1, under({.dense = {.visible = pairs}})},
      {2, under({.window = {.right = 0}, .documents = {{0, 9, 33}, {0, 12, 40}}})},
      {3, under({.window = {.left = 5, .right = 2, .sinks = 2}, .prefix = 9})},
      {2, with_value_dim(under({.documents = {{0, 9, 33}, {0, 12, 40}}}), 40)},
      {3, with_value_dim(under({.window = {.right = 0}}), 128)},
      {4, under({.columns = {.heads = 1, .bounds = 1, .queries = std::vector<int>(40, 17)}})},
      {5, under({.blocks = {20, 16, {0, 1, 3}, {1, 0, 2}}})},
      {5, under({}, {.softcap = 2})},
      {5, under({}, {.alibi = {0.5f, 1}})},
      {5, under({.window = {.right = 0}, .documents = {{0, 9, 33}, {0, 12, 40}}},
                {.alibi = {0.5f, 1, 0.25f, 2}})},
      {5, under({}, {.bias = {1, {1, 2, 3, 4, 5, 6}}})},
      {5, under({}, {.dropout = 0.25f, .seed = 0x500000003})}};
  for (const auto& [step, spec] : calls) {
    SCOPED_TRACE(describe(spec));
    given.value_dim = spec.value_dim == spec.head_dim ? 0 : spec.value_dim;
    const Inputs inputs = make_inputs(spec, InputKind::normal, 1);
    const UploadedInputs uploaded(Operation::forward, spec, inputs, device::Place::device);
    const Chapter& chapter = *chapter_numbered(9);
    const Call call(Operation::forward, spec, uploaded, chapter.step(step).workspace_bytes(spec),
                    [&, step = step, &spec = spec](const Tensors& t) {
                      const FlashbookMask mask = mask_of(spec, t);
                      EXPECT_EQ(flashbook_masked_workspace_bytes(9, step, &given, &mask),
                                chapter.step(step).workspace_bytes(spec));
                      const FlashbookTensors tensors = tensors_of(t);
                      ASSERT_EQ(flashbook_masked(9, step, &given, &mask, &tensors, nullptr), FLASHBOOK_OK)
                          << flashbook_last_error();
                    });
    call.run();
    const Outputs got = call.download(), want = run_once(chapter, spec, inputs, step);
    EXPECT_EQ(got.o, want.o);
    EXPECT_EQ(got.lse, want.lse);
  }
}

// In programs, the same messages name command-line options, which a C caller does not have.
TEST(CInterface, NoReasonNamesAnOption) {
  FlashbookShape shape = small_shape();
  const FlashbookTensors tensors = some_tensors();
  const auto reason = [&](int chapter, int step) {
    EXPECT_EQ(flashbook_attention(chapter, step, &shape, &tensors, nullptr), FLASHBOOK_BAD_ARGUMENT);
    return std::string(flashbook_last_error());
  };
  shape.head_dim = 7;
  EXPECT_EQ(reason(1, 1).find("head_dim 7 "), 0u);
  shape = small_shape(), shape.seqlen_q = 0;
  EXPECT_EQ(reason(1, 1).find("seqlen_q "), 0u);
  shape = small_shape(), shape.heads = 3, shape.kv_heads = 2;
  EXPECT_EQ(reason(1, 1).find("kv_heads 2 does not divide heads 3"), 0u);
  shape = small_shape(), shape.dtype = FLASHBOOK_F32;
  EXPECT_EQ(reason(5, 1), "chapter 5 does not support f32: set another dtype");
}

class CInterfaceOnHopper : public HopperTest {};

// Concurrent calls, two on each of up to two devices: chapter 5's blocks take tiles from a counter, which is
// in each call's own workspace.
TEST_F(CInterfaceOnHopper, StreamsAndDevicesRunAtTheSameTime) {
  constexpr int kCalls = 4;
  FlashbookShape given = small_shape();
  given.dtype = FLASHBOOK_BF16;
  given.seqlen_q = 300;
  Spec spec = small_shape_of_the_house();
  spec.dtype = DType::bf16;
  spec.seqlen_q = 300;
  const Inputs inputs = make_inputs(spec, InputKind::normal, 1);
  const Outputs want = run_once(*all_chapters()[4], spec, inputs, flashbook_step(5, "persistent"));
  const std::vector<std::byte> zeros(std::size_t(flashbook_workspace_bytes(5, 5, &given)));
  struct InFlight {
    device::Queue queue;
    UploadedInputs inputs;
    device::Buffer o, lse, workspace;
  };
  std::vector<std::unique_ptr<InFlight>> calls;
  for (int i = 0; i < kCalls; ++i) {
    device::use_device(i % std::min(2, device::device_count()));
    const auto room = [](std::size_t bytes) { return device::Buffer(device::Place::device, bytes); };
    calls.emplace_back(new InFlight{.queue = {},
                                    .inputs = {Operation::forward, spec, inputs, device::Place::device},
                                    .o = room(want.o.size() * 2),
                                    .lse = room(want.lse.size() * sizeof(float)),
                                    .workspace = room(zeros.size())});
    calls.back()->o.poison();
    calls.back()->lse.poison();
    calls.back()->workspace.upload(zeros);
  }
  for (int i = 0; i < kCalls; ++i) {
    device::use_device(i % std::min(2, device::device_count()));
    const InFlight& call = *calls[std::size_t(i)];
    Tensors tensors = call.inputs.tensors();
    tensors.o = call.o.data();
    tensors.lse = static_cast<float*>(call.lse.data());
    tensors.workspace = call.workspace.data();
    const FlashbookTensors handed = tensors_of(tensors);
    EXPECT_EQ(flashbook_attention(5, 5, &given, &handed, call.queue.stream()), FLASHBOOK_OK)
        << flashbook_last_error();
  }
  for (int i = 0; i < kCalls; ++i) {
    device::use_device(i % std::min(2, device::device_count()));
    InFlight& call = *calls[std::size_t(i)];
    call.queue.synchronize();
    std::vector<float> lse(want.lse.size());
    call.lse.download(std::as_writable_bytes(std::span(lse)));
    std::vector<uint16_t> o(want.o.size());
    call.o.download(std::as_writable_bytes(std::span(o)));
    EXPECT_EQ(lse, want.lse) << "call " << i;
    for (std::size_t j = 0; j < o.size(); ++j)
      ASSERT_EQ(std::bit_cast<float>(uint32_t(o[j]) << 16), want.o[j]) << "call " << i << ", element " << j;
  }
  device::use_device(0);
}

}  // namespace
}  // namespace flashbook

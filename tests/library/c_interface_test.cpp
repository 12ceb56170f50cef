#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
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
#include "common/features/definition.h"
#include "common/features/pages/pages.h"
#include "library/chapters.h"
#include "library/flashbook.h"
#include "tests/require_gpu.h"
#include "tests/support/specs.h"

#pragma GCC diagnostic ignored "-Wmissing-field-initializers"  // fields that are left out are 0

namespace flashbook {
namespace {

/// A problem with its features after it in memory. The default has no features.
class Given {
 public:
  FlashbookProblem sizes = {.size = sizeof(FlashbookProblem),
                            .batch = 1,
                            .heads = 2,
                            .kv_heads = 1,
                            .seqlen_q = 33,
                            .seqlen_k = 40,
                            .head_dim = 64,
                            .dtype = FLASHBOOK_F32,
                            .scale = 0.125f};

  template <typename Feature>
  Given& with(const Feature& feature, std::size_t size = sizeof(Feature)) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&feature);
    features_.insert(features_.end(), bytes, bytes + size);
    ++sizes.features;
    return *this;
  }
  Given& causal() { return with(FlashbookWindow{FLASHBOOK_WINDOW, -1, 0}); }
  /// Returns the problem with its features' arrays, which are among these tensors.
  Given with_arrays(const Tensors& tensors) const {
    Given filled = *this;
    for (std::size_t at = 0; at < features_.size();) {
      int32_t kind;
      std::memcpy(&kind, &features_[at], sizeof kind);
      const auto has_kind = [&](const Definition* feature) { return feature->in_c.kind == kind; };
      const CStruct& type = (*std::ranges::find_if(definitions(), has_kind))->in_c;
      at += type.size;
      for (std::size_t i = 0; i < type.pointer_count; ++i)
        std::memcpy(&filled.features_[at - (type.pointer_count - i) * sizeof(void*)],
                    reinterpret_cast<const char*>(&tensors) + type.pointers[i].to, sizeof(void*));
    }
    return filled;
  }
  /// Returns the address to pass to the library, valid until the next call.
  operator const FlashbookProblem*() const {
    memory_.resize(sizeof sizes);
    std::memcpy(memory_.data(), &sizes, sizeof sizes);
    memory_.insert(memory_.end(), features_.begin(), features_.end());
    return reinterpret_cast<const FlashbookProblem*>(memory_.data());
  }

 private:
  std::vector<std::byte> features_;
  mutable std::vector<std::byte> memory_;
};

/// Returns the small problem as a chapter's Spec.
Spec small_spec() { return testing::make_spec(33, 40, 64, true, DType::f32, 2, 1); }

/// Tensors that are never read, because every call with them is rejected first.
FlashbookTensors some_tensors() {
  alignas(256) static float memory[1];
  return {sizeof(FlashbookTensors), memory, memory, memory, memory, memory, memory};
}

FlashbookPages some_pages(int32_t page_rows, int32_t pages, int32_t shared_keys = 0) {
  return FlashbookPages{FLASHBOOK_PAGES, page_rows, pages, shared_keys};
}

template <typename T>
T* shifted(T* pointer, int bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(pointer) + std::uintptr_t(bytes));
}

/// Returns the number of chapter 8's step for ragged caches.
int equal_work() { return flashbook_step(8, "equal_work"); }

bool last_error_has(const std::string& part) {
  return std::string(flashbook_last_error()).find(part) != std::string::npos;
}

void expect_refused(int chapter, int step, const FlashbookProblem* problem, const FlashbookTensors* tensors,
                    const std::string& because) {
  EXPECT_EQ(flashbook_attention(chapter, step, problem, tensors, nullptr), FLASHBOOK_BAD_ARGUMENT) << because;
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
  const Given problem = Given().causal();
  const FlashbookTensors tensors = some_tensors();
  expect_refused(99, 1, problem, &tensors, "unknown chapter 99");
  expect_refused(1, 0, problem, &tensors, "no step 0");
  expect_refused(1, 99, problem, &tensors, "no step 99");
  expect_refused(1, 1, nullptr, &tensors, "problem is null");
  expect_refused(1, 1, problem, nullptr, "tensors is null");
  expect_refused(7, 1, problem, &tensors, "step 1 of chapter 7 is for backward: use flashbook_backward");

  const auto refuse = [&](auto change, const std::string& because) {
    Given wrong = problem;
    change(wrong.sizes);
    expect_refused(1, 1, wrong, &tensors, because);
  };
  refuse([](auto& s) { s.dtype = 7; }, "dtype is 7");
  refuse([](auto& s) { s.dtype = FLASHBOOK_E4M3; }, "chapter 1 does not support e4m3: set another dtype");
  refuse([](auto& s) { s.scale = 0; }, "scale");
  refuse([](auto& s) { s.head_dim = 80; }, "head dimensions other than");
  for (const int32_t head_dim : {100, 264}) refuse([&](auto& s) { s.head_dim = head_dim; }, "head_dim");
  refuse([](auto& s) { s.value_dim = 7; }, "value_dim 7 is not supported");
  refuse([](auto& s) { s.value_dim = 128; }, "values that are wider or narrower than keys");
  // In programs, these messages name options.
  refuse([](auto& s) { s.seqlen_q = 0; }, "seqlen_q is 0");
  refuse([](auto& s) { s.heads = 3, s.kv_heads = 2; }, "kv_heads 2 does not divide heads 3");
  refuse([](auto& s) { s.size = 40; }, "problem.size is 40: set it to sizeof, 48");
  refuse([](auto& s) { s.features = -1; }, "features is -1");
  refuse([](auto& s) { s.features = 65; }, "features is 65");

  const auto refuse_feature = [&](auto feature, const std::string& because) {
    expect_refused(1, 1, Given(problem).with(feature), &tensors, because);
  };
  refuse_feature(FlashbookUnsplit{99}, "feature 2 has kind 99: set it to the constant");
  refuse_feature(FlashbookUnsplit{-1}, "feature 2 has kind -1");
  refuse_feature(FlashbookSoftcap{FLASHBOOK_SOFTCAP, 2}, "chapter 1 does not support softcaps");
  refuse_feature(FlashbookWindow{FLASHBOOK_WINDOW}, "feature 2, window, is given twice");
  refuse_feature(FlashbookScales{FLASHBOOK_SCALES, 3}, "scaling is 3");
  auto layout = FlashbookLayout{FLASHBOOK_LAYOUT};
  layout.k = {.batch = 40 * 64, .head = 40 * 64, .row = 64 + 2};
  refuse_feature(layout, "row stride of k is 66");
  layout.k = {41 * 64, 41 * 64, 64};  // contradicts [batch, heads, seqlen, head_dim]
  refuse_feature(layout, "layouts other than [batch, heads, seqlen, head_dim]");

  const auto refuse_tensors = [&](auto change, const std::string& because) {
    FlashbookTensors wrong = tensors;
    change(wrong);
    expect_refused(1, 1, problem, &wrong, because);
  };
  // Chapters 3 and 4 load 16 bytes at a time: an unaligned load would fault and destroy the context.
  refuse_tensors([](auto& t) { t.q = shifted(t.q, 8); },
                 "q is not aligned: pass an address that is a multiple of 16");
  refuse_tensors([](auto& t) { t.k = shifted(t.k, 8); }, "k is not aligned");
  refuse_tensors([](auto& t) { t.v = shifted(t.v, 8); }, "v is not aligned");
  refuse_tensors([](auto& t) { t.o = shifted(t.o, 8); }, "o is not aligned");
  refuse_tensors([](auto& t) { t.workspace = shifted(t.workspace, 16); }, "workspace is not aligned");
  refuse_tensors([](auto& t) { t.lse = nullptr; }, "lse is null");
  refuse_tensors([](auto& t) { t.workspace = nullptr; }, "workspace is null: this step needs");
}

TEST(CInterface, WorkspaceAndCostAreTheChapters) {
  const Given problem = Given().causal();
  EXPECT_GT(flashbook_workspace_bytes(1, 1, problem), 0);
  EXPECT_STREQ(flashbook_last_error(), "");
  EXPECT_EQ(flashbook_workspace_bytes(1, 9, problem), -1);
  EXPECT_TRUE(last_error_has("no step 9"));

  Given unsplit;
  unsplit.sizes.dtype = FLASHBOOK_BF16, unsplit.sizes.seqlen_q = 1, unsplit.sizes.seqlen_k = 4096;
  const int64_t split_bytes = flashbook_workspace_bytes(8, equal_work(), unsplit);
  unsplit.with(FlashbookUnsplit{FLASHBOOK_UNSPLIT});
  EXPECT_LT(flashbook_workspace_bytes(8, equal_work(), unsplit), split_bytes);

  double flops = 0, bytes = 0;
  ASSERT_EQ(flashbook_cost(1, 2, problem, &flops, &bytes), FLASHBOOK_OK);
  EXPECT_EQ(flops, 4.0 * 64 * (33 * (8 + 40) / 2) * 2);  // query i sees 8 + i keys
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(flashbook_cost(1, 2, problem, nullptr, &bytes), FLASHBOOK_BAD_ARGUMENT);
  Given pairs;
  pairs.sizes.dtype = FLASHBOOK_BF16;
  pairs.with(FlashbookPairs{FLASHBOOK_PAIRS, 1});
  EXPECT_EQ(flashbook_cost(9, 1, pairs, &flops, &bytes), FLASHBOOK_BAD_ARGUMENT);
  EXPECT_TRUE(last_error_has("pairs is in device memory")) << flashbook_last_error();
}

TEST(CInterface, EachThreadHasItsOwnLastError) {
  EXPECT_EQ(flashbook_workspace_bytes(99, 1, nullptr), -1);
  std::thread([] { EXPECT_STREQ(flashbook_last_error(), ""); }).join();
  EXPECT_TRUE(last_error_has("unknown chapter 99"));
}

constexpr int32_t kLeast = std::numeric_limits<int32_t>::min(), kMax = std::numeric_limits<int32_t>::max();

/// A call of the C interface, and whether it has an error that every chapter must report.
struct OddCall {
  int chapter = 1, step = 1;
  Given problem;
  FlashbookTensors tensors = some_tensors();
  bool is_wrong = false;
};

/// Draws calls from a seed, with some unusual values; if `wrong`, with an error.
class OddCalls {
 public:
  explicit OddCalls(unsigned seed) : random_(seed) {}

  OddCall draw(bool wrong) {
    OddCall call;
    call.chapter = 1 + below(flashbook_chapter_count());
    call.step = 1 + below(3);
    call.problem.sizes.dtype = one_of<int32_t>(FLASHBOOK_F32, FLASHBOOK_F16, FLASHBOOK_BF16, FLASHBOOK_E4M3);
    for (int changes = below(4); changes > 0; --changes) make_odd(call.problem);
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

  /// A feature whose numbers and pointers are any of a few; the same kind may come twice.
  void make_feature(Given& problem) {
    const CStruct* type = nullptr;
    while (type == nullptr || type->kind == 0) type = &definitions()[below(int(definitions().size()))]->in_c;
    static const int32_t entries[4] = {};
    std::array<std::byte, 256> bytes = {};
    const auto put = [&](std::size_t at, auto value) { std::memcpy(&bytes[at], &value, sizeof value); };
    put(0, type->kind);
    std::size_t pointers = type->size;
    for (std::size_t i = 0; i < type->pointer_count; ++i)
      put(pointers -= sizeof(void*), one_of<const int32_t*>(nullptr, entries));
    for (std::size_t at = sizeof type->kind; at < pointers; at += 4)
      if (type->kind == FLASHBOOK_SOFTCAP || type->kind == FLASHBOOK_DROPOUT)
        put(at, one_of<float>(0, 0.1f, 1, 30, NAN, -1));
      else
        put(at, one_of<int32_t>(kLeast, -1, 0, 0, 0, 1, 2, 64, kMax));
    problem.with(bytes, type->size);
  }

  /// A value that may be valid or too large, or a feature.
  void make_odd(Given& problem) {
    FlashbookProblem& s = problem.sizes;
    const int32_t many = one_of<int32_t>(1, 3, 16, 1000, 65536, kMax - 1, kMax);
    const std::function<void()> changes[] = {
        [&] { s.batch = many; },
        [&] { s.heads = s.kv_heads = many; },
        [&] { s.seqlen_q = many; },
        [&] { s.seqlen_k = many; },
        [&] { s.head_dim = one_of<int32_t>(40, 64, 80, 128, 200, 256, 576); },
        [&] { s.scale = one_of<float>(1e-45f, 1e-3f, 1, 3e38f); },
        [&] { make_feature(problem); },
        [&] { make_feature(problem); }};
    changes[below(int(std::size(changes)))]();
  }

  void make_wrong(OddCall& call) {
    call.is_wrong = true;
    FlashbookProblem& s = call.problem.sizes;
    FlashbookTensors& t = call.tensors;
    const int32_t bad = one_of<int32_t>(0, -1, kLeast);
    const int odd = 1 + below(15);
    const std::function<void()> changes[] = {
        [&] { call.chapter = one_of<int>(0, -1, 99, int(kMax), int(kLeast)); },
        [&] { call.step = one_of<int>(0, -1, 99, int(kMax), int(kLeast)); },
        [&] { s.size = one_of<std::size_t>(0, 1, sizeof s + 8, ~std::size_t(0)); },
        [&] { t.size = one_of<std::size_t>(0, 1, sizeof t + 8, ~std::size_t(0)); },
        [&] { s.features = one_of<int32_t>(-1, 65, kMax, kLeast); },
        [&] { call.problem.with(FlashbookUnsplit{one_of<int32_t>(kLeast, -1, 0, 60, 99, kMax)}); },
        [&] { s.batch = bad; },
        [&] { s.heads = bad; },
        [&] { s.kv_heads = one_of<int32_t>(0, -1, 3, kLeast, kMax), s.heads = 2; },
        [&] { s.seqlen_q = bad; },
        [&] { s.seqlen_k = bad; },
        [&] { s.head_dim = one_of<int32_t>(0, -64, 1, 100, 4096, kMax, kLeast); },
        [&] { s.dtype = one_of<int32_t>(-1, 4, kMax, kLeast); },
        [&] { s.scale = one_of<float>(0, -1, NAN, -INFINITY, INFINITY); },
        [&] { t.q = one_of<const void*>(nullptr, shifted(t.q, odd)); },
        [&] { t.o = one_of<void*>(nullptr, shifted(t.o, odd)); },
        [&] {
          const int64_t step = one_of<int64_t>(-64, 1, 65, std::numeric_limits<int64_t>::min());
          auto layout = FlashbookLayout{FLASHBOOK_LAYOUT};
          one_of<FlashbookStrides*>(&layout.q, &layout.k, &layout.o)[0] = {step, step, step};
          call.problem.with(layout);
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
    const FlashbookTensors& t = call.tensors;
    const FlashbookGradients gradients = {sizeof gradients, t.q, t.o, t.o, t.o};
    const std::string name = "call " + std::to_string(i);
    const auto expect = [&](int status) {
      EXPECT_EQ(status, FLASHBOOK_BAD_ARGUMENT) << name << ": " << flashbook_last_error();
      expect_one_line(true, name);
    };
    expect(flashbook_attention(call.chapter, call.step, call.problem, &t, nullptr));
    expect(flashbook_backward(call.chapter, call.step, call.problem, &t, &gradients, nullptr));
  }
}

TEST(CInterface, AnswersTheOddQuestionsOfAGenerator) {
  OddCalls calls(unsigned(from_environment("FLASHBOOK_HOSTILE_SEED", 1)));
  int taken = 0, with_features = 0;
  for (int i = 0; i < from_environment("FLASHBOOK_HOSTILE_CALLS", 1000); ++i) {
    const OddCall call = calls.draw(calls.below(2) == 0);
    const FlashbookProblem* problem = call.problem;
    const std::string name = "call " + std::to_string(i);
    const int64_t bytes = flashbook_workspace_bytes(call.chapter, call.step, problem);
    expect_one_line(bytes < 0, name);
    double flops = -1, moved = -1;
    const int status = flashbook_cost(call.chapter, call.step, problem, &flops, &moved);
    expect_one_line(status != FLASHBOOK_OK, name);
    EXPECT_LE(status == FLASHBOOK_OK, bytes >= 0) << name;  // the cost does not know arrays in device memory
    if (status == FLASHBOOK_OK) {
      ++taken, with_features += problem->features > 0;
      EXPECT_TRUE(flops >= 0 && moved >= 0 && flops < INFINITY && moved < INFINITY)
          << name << ": " << flops << " FLOPs, " << moved << " bytes, chapter " << call.chapter;
    }
  }
  EXPECT_GT(taken, 0);
  EXPECT_GT(with_features, 0);
}

// The arrays of a mask or a cache have the length that the caller gives; no machine has this much memory.
TEST(CInterface, RefusesTablesThatNobodyCanHold) {
  Given problem;
  problem.sizes.dtype = FLASHBOOK_BF16;
  const FlashbookTensors tensors = some_tensors();
  static const int32_t entries[4] = {};
  const auto refuse = [&](int chapter, int step, auto feature, const std::string& because) {
    expect_refused(chapter, step, Given(problem).with(feature), &tensors, because);
  };
  refuse(9, 1, FlashbookDocuments{FLASHBOOK_DOCUMENTS, kMax}, "documents");
  refuse(9, 2, FlashbookDocuments{FLASHBOOK_DOCUMENTS, 2, entries}, "first_key is null");
  refuse(9, 2, FlashbookDocuments{FLASHBOOK_DOCUMENTS, -1}, "documents is -1: give at least 1");
  refuse(9, 1, FlashbookIntervals{FLASHBOOK_INTERVALS, kMax, kMax}, "bounds");
  refuse(9, 5, FlashbookBlocks{FLASHBOOK_BLOCKS, 64, 64, 0, entries}, "key_blocks is null");
  refuse(9, 5, FlashbookBlocks{FLASHBOOK_BLOCKS}, "block_queries is 0: give at least 1");
  refuse(9, 5, FlashbookBias{FLASHBOOK_BIAS, -1}, "reach is -1: give 0 or more");
  refuse(8, 6, FlashbookPackedQueries{FLASHBOOK_PACKED_QUERIES}, "queries is 0");
  problem.sizes.seqlen_q = 1, problem.sizes.batch = 4, problem.sizes.seqlen_k = kMax;
  refuse(8, 6, some_pages(1, 8), "2^30 keys");

  problem = Given(), problem.sizes.dtype = FLASHBOOK_E4M3;
  auto means = FlashbookScales{FLASHBOOK_SCALES};
  means.k_mean = reinterpret_cast<const float*>(&entries[1]);
  refuse(6, 1, means, "k_mean is not aligned");
}

class CInterfaceOnMachine : public MachineTest {};

FlashbookTensors tensors_of(const Tensors& t) {
  return {sizeof(FlashbookTensors), t.q, t.k, t.v, t.o, t.lse, t.workspace};
}

// Each field matters: without it the outputs differ.
TEST_F(CInterfaceOnMachine, CarriesScalesAndMeans) {
  Given given = Given().causal();
  given.sizes.dtype = FLASHBOOK_E4M3;
  given.sizes.seqlen_q = given.sizes.seqlen_k = 200, given.sizes.batch = given.sizes.kv_heads = 2;
  Spec spec{{.batch = 2, .heads = 2, .kv_heads = 2, .seqlen_q = 200, .seqlen_k = 200, .dtype = DType::e4m3},
            Visibility::causal()};
  spec.e4m3 = {.scaling = Scaling::head, .mean_subtracted = true};
  const Inputs inputs = make_inputs(spec, InputKind::channels, 1);
  const Chapter& chapter = *chapter_numbered(6);
  const UploadedInputs uploaded(Operation::forward, spec, inputs, device::Place::device);
  given.with(FlashbookScales{FLASHBOOK_SCALES, FLASHBOOK_SCALE_OF_HEAD});
  const auto run = [&](auto change) {
    const Call call(
        Operation::forward, spec, uploaded, flashbook_workspace_bytes(6, 2, given), [&](Tensors t) {
          change(t);
          const FlashbookTensors tensors = tensors_of(t);
          ASSERT_EQ(flashbook_attention(6, 2, given.with_arrays(t), &tensors, nullptr), FLASHBOOK_OK)
              << flashbook_last_error();
        });
    call.run();
    return call.download_bytes();
  };
  const auto whole = run([](Tensors&) {});
  EXPECT_TRUE(whole == [&] {
    const Call call(chapter, spec, uploaded, 2);
    call.run();
    return call.download_bytes();
  }());
  for (const float* Tensors::*part :
       {&Tensors::q_scale, &Tensors::k_scale, &Tensors::v_scale, &Tensors::k_mean, &Tensors::v_mean})
    EXPECT_FALSE(run([&](Tensors& t) { t.*part = nullptr; }) == whole);
}

/// Expects a step's outputs, bit for bit, and its workspace.
void expect_as_the_chapter(int number, int step, const Spec& spec, const Given& given) {
  SCOPED_TRACE(describe(spec) + ", step " + std::to_string(step));
  const Chapter& chapter = *chapter_numbered(number);
  const Inputs inputs = make_inputs(spec, InputKind::normal, 1);
  const UploadedInputs uploaded(Operation::forward, spec, inputs, device::Place::device);
  const int64_t bytes = chapter.step(step).workspace_bytes(spec);
  EXPECT_EQ(flashbook_workspace_bytes(number, step, given), bytes);
  const Call call(Operation::forward, spec, uploaded, bytes, [&](const Tensors& t) {
    const FlashbookTensors tensors = tensors_of(t);
    ASSERT_EQ(flashbook_attention(number, step, given.with_arrays(t), &tensors, nullptr), FLASHBOOK_OK)
        << flashbook_last_error();
  });
  call.run();
  const Outputs got = call.download(), want = run_once(chapter, spec, inputs, step);
  EXPECT_EQ(got.o, want.o);
  EXPECT_EQ(got.lse, want.lse);
}

TEST_F(CInterfaceOnMachine, ComputesWhatTheChapterDoes) {
  for (int step = 1; step <= chapter_numbered(1)->last_step(); ++step)
    if (chapter_numbered(1)->refusal(step, small_spec()).empty())  // the tensor cores have no FP32
      expect_as_the_chapter(1, step, small_spec(), Given().causal());
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

Given decoding(int32_t batch, int32_t keys) {
  Given given;
  given.sizes.batch = batch, given.sizes.heads = 4, given.sizes.kv_heads = 2;
  given.sizes.seqlen_q = 1, given.sizes.seqlen_k = keys, given.sizes.dtype = FLASHBOOK_BF16;
  return given;
}

// Lengths and pages are only in device memory: the problem does not contain them. With and without a shared
// prefix.
TEST_F(CInterfaceOnMachine, DecodesAgainstPages) {
  const int kStep = equal_work();
  constexpr int kBatch = 3, kKeys = 200, kRows = 16;
  const Given given = decoding(kBatch, kKeys);
  Spec spec = testing::make_spec(1, kKeys, 64, false, DType::bf16, 4, 2);
  spec.batch = kBatch, spec.visibility.lengths = {0, 130, kKeys};
  for (int shared : {0, kRows}) {
    spec.visibility.lengths[0] = shared;
    spec.paging = random_pages(spec, kRows, shared, 1);
    const Inputs inputs = make_inputs(spec, InputKind::normal, 1);
    const UploadedInputs uploaded(Operation::decode, spec, inputs, device::Place::device);
    const Outputs want = run_once(*chapter_numbered(8), spec, inputs, kStep);

    const int64_t bytes = flashbook_workspace_bytes(8, kStep, given);
    device::Buffer workspace(device::Place::device, bytes);
    workspace.upload(std::vector<std::byte>(bytes));
    const Given problem = Given(given)
                              .with(FlashbookLengths{FLASHBOOK_LENGTHS})
                              .with(some_pages(kRows, spec.paging.pages, shared));
    const Call call(Operation::decode, spec, uploaded, 0, [&](const Tensors& t) {
      FlashbookTensors tensors = tensors_of(t);
      tensors.workspace = workspace.data();
      expect_refused(8, 4, problem.with_arrays(t), &tensors, "pages");
      EXPECT_EQ(flashbook_workspace_bytes(8, kStep, Given(given).with(some_pages(24, spec.paging.pages))),
                -1);
      EXPECT_TRUE(last_error_has("pages")) << flashbook_last_error();
      auto layout = FlashbookLayout{FLASHBOOK_LAYOUT};  // its strides are between pages, not sequences
      layout.k = layout.v = {.batch = 2 * kRows * 64, .head = kRows * 64, .row = 64};
      EXPECT_EQ(flashbook_workspace_bytes(8, kStep, Given(problem).with(layout)), bytes);
      ASSERT_EQ(flashbook_attention(8, kStep, problem.with_arrays(t).with(layout), &tensors, nullptr),
                FLASHBOOK_OK)
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
  const Given plain = decoding(kBatch, kKeys).with(FlashbookLengths{FLASHBOOK_LENGTHS});
  const UploadedInputs uploaded(Operation::decode, spec, make_inputs(spec, InputKind::normal, 1),
                                device::Place::device);
  const int64_t bytes = flashbook_workspace_bytes(8, kStep, plain);
  device::Buffer workspace(device::Place::device, bytes);
  workspace.upload(std::vector<std::byte>(bytes));
  const Call call(Operation::decode, spec, uploaded, 0, [&](const Tensors& t) {
    FlashbookTensors tensors = tensors_of(t);
    tensors.workspace = workspace.data();
    const Given good = Given(plain).with(some_pages(kRows, spec.paging.pages)).with_arrays(t);
    const auto status = [&](const Given& problem) {
      return flashbook_attention(8, kStep, problem, &tensors, nullptr);
    };
    const auto refuse = [&](const Given& problem, const FlashbookTensors& by, const char* because,
                            int step = equal_work()) {
      ASSERT_EQ(status(good), FLASHBOOK_OK) << flashbook_last_error();
      expect_refused(8, step, problem, &by, because);
    };
    const auto but = [](auto from, auto change) {
      change(from);
      return from;
    };
    const auto sized = [&](auto change) { return but(good, [&](Given& problem) { change(problem.sizes); }); };
    refuse(sized([](auto& s) { s.kv_heads = 3; }), tensors, "heads");
    refuse(sized([](auto& s) { s.head_dim = 60; }), tensors, "head_dim");
    refuse(sized([](auto& s) { s.scale = 0; }), tensors, "scale");
    refuse(sized([](auto& s) { s.dtype = FLASHBOOK_F32; }), tensors, "dtype");
    auto layout = FlashbookLayout{FLASHBOOK_LAYOUT};
    layout.q = {.batch = 256, .head = 64, .row = 3};
    refuse(Given(good).with(layout), tensors, "stride");
    refuse(Given(plain).with(some_pages(24, spec.paging.pages)).with_arrays(t), tensors, "pages");
    refuse(Given(good).with(FlashbookPaddings{FLASHBOOK_PADDINGS}), tensors, "paddings");
    refuse(good, tensors, "pages", 4);
    // The memory of checked calls excludes pointers.
    refuse(good, but(tensors, [](auto& all) { all.q = nullptr; }), "q is null");
    refuse(good, but(tensors, [](auto& all) { all.workspace = nullptr; }), "workspace is null");
    refuse(good, but(tensors, [&](auto& all) { all.k = shifted(all.k, 2); }), "k is not aligned");
    const auto tabled = [&](TableId id, const void* table) {
      return good.with_arrays(but(t, [&](Tensors& all) { all.tables[int(id)] = table; }));
    };
    refuse(tabled(TableId::lengths, shifted(t.tables[int(TableId::lengths)], 2)), tensors,
           "lengths is not aligned");
    refuse(tabled(TableId::page_table, nullptr), tensors, "page_table is null");
    // Makes more calls than the memory of checked calls holds.
    for (int keys = kKeys; keys > kKeys - 20; --keys)
      EXPECT_EQ(status(sized([&](auto& s) { s.seqlen_k = keys; })), FLASHBOOK_OK) << keys;
    ASSERT_EQ(status(good), FLASHBOOK_OK) << flashbook_last_error();
  });
  call.run();
  const Outputs want = run_once(*chapter_numbered(8), spec, make_inputs(spec, InputKind::normal, 1), kStep);
  EXPECT_EQ(call.download().o, want.o);
}

// Each field matters: the outputs equal the chapter's bit for bit.
TEST_F(CInterfaceOnMachine, MasksAndFunctionsAreTheChapters) {
  Spec plain = small_spec();
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
  const auto documents = FlashbookDocuments{FLASHBOOK_DOCUMENTS, 2};
  const Documents two = {{0, 9, 33}, {0, 12, 40}};
  const struct {
    int step;
    Spec spec;
    Given given;
  } calls[] = {
      {1, under({.dense = {.visible = pairs}}), Given().with(FlashbookPairs{FLASHBOOK_PAIRS, 1})},
      {2, under({.window = {.right = 0}, .documents = two}), Given().causal().with(documents)},
      {3, under({.window = {.left = 5, .right = 2, .sinks = 2}, .prefix = 9}),
       Given().with(FlashbookWindow{FLASHBOOK_WINDOW, 5, 2, 2, 9})},
      {2, with_value_dim(under({.documents = two}), 40), Given().with(documents)},
      {3, with_value_dim(under({.window = {.right = 0}}), 128), Given().causal()},
      {4, under({.columns = {.heads = 1, .bounds = 1, .queries = std::vector<int>(40, 17)}}),
       Given().with(FlashbookIntervals{FLASHBOOK_INTERVALS, 1, 1})},
      {5, under({.blocks = {20, 16, {0, 1, 3}, {1, 0, 2}}}),
       Given().with(FlashbookBlocks{FLASHBOOK_BLOCKS, 20, 16})},
      {5, under({}, {.softcap = 2}), Given().with(FlashbookSoftcap{FLASHBOOK_SOFTCAP, 2})},
      {5, under({}, {.alibi = {0.5f, 1}}), Given().with(FlashbookAlibi{FLASHBOOK_ALIBI})},
      {5, under({.window = {.right = 0}, .documents = two}, {.alibi = {0.5f, 1, 0.25f, 2}}),
       Given().with(FlashbookAlibi{FLASHBOOK_ALIBI, 2}).causal().with(documents)},
      {5, under({}, {.bias = {1, {1, 2, 3, 4, 5, 6}}}), Given().with(FlashbookBias{FLASHBOOK_BIAS, 1})},
      {5, under({}, {.dropout = 0.25f, .seed = 0x500000003}),
       Given().with(FlashbookDropout{FLASHBOOK_DROPOUT, 0.25f, uint64_t(0x500000003)})}};
  for (auto [step, spec, given] : calls) {
    given.sizes.dtype = FLASHBOOK_BF16;
    given.sizes.value_dim = spec.value_dim == spec.head_dim ? 0 : spec.value_dim;
    expect_as_the_chapter(9, step, spec, given);
  }
}

class CInterfaceOnHopper : public HopperTest {};

// Concurrent calls, two on each of up to two devices: chapter 5's blocks take tiles from a counter, which is
// in each call's own workspace.
TEST_F(CInterfaceOnHopper, StreamsAndDevicesRunAtTheSameTime) {
  constexpr int kCalls = 4;
  Given given = Given().causal();
  given.sizes.dtype = FLASHBOOK_BF16, given.sizes.seqlen_q = 300;
  Spec spec = small_spec();
  spec.dtype = DType::bf16;
  spec.seqlen_q = 300;
  const Inputs inputs = make_inputs(spec, InputKind::normal, 1);
  const Outputs want = run_once(*all_chapters()[4], spec, inputs, flashbook_step(5, "persistent"));
  const std::vector<std::byte> zeros(std::size_t(flashbook_workspace_bytes(5, 5, given)));
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
    EXPECT_EQ(flashbook_attention(5, 5, given, &handed, call.queue.stream()), FLASHBOOK_OK)
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

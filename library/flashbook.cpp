#include "library/flashbook.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/app/machine_context.h"
#include "common/attention/cost.h"
#include "common/attention/error.h"
#include "common/device/backend.h"
#include "common/device/queue.h"
#include "library/chapters.h"

namespace flashbook {
namespace {

thread_local std::string last_error;

/// Replaces options by fields in a message: programs report `--head-dim 7 is not supported`, but C and Python
/// callers need the name of the field.
std::string without_options(const std::string& reason) {
  std::string named;
  for (std::size_t at = 0; at < reason.size();) {
    if (reason.compare(at, 2, "--") != 0 || !std::islower(static_cast<unsigned char>(reason[at + 2]))) {
      named += reason[at++];
      continue;
    }
    std::string option;
    for (at += 2;
         at < reason.size() && (std::islower(static_cast<unsigned char>(reason[at])) || reason[at] == '-');
         ++at)
      option += reason[at] == '-' ? '_' : reason[at];
    named += option == "seqlen" ? "seqlen_q" : option;
  }
  return named;
}

/// Runs `body` and converts exceptions to a status and a last error.
template <typename Body>
int guarded(Body body) noexcept {
  const auto fail = [](const char* reason, int status) {
    try {
      last_error = reason;
    } catch (...) {
      last_error.clear();  // there is not even enough memory for the message
    }
    return status;
  };
  try {
    last_error.clear();
    body();
    return FLASHBOOK_OK;
  } catch (const InputError& error) {
    return fail(without_options(error.what()).c_str(), FLASHBOOK_BAD_ARGUMENT);
  } catch (const device::HardwareMissing& error) {
    return fail(error.what(), FLASHBOOK_HARDWARE_MISSING);
  } catch (const std::bad_alloc&) {
    return fail("out of host memory", FLASHBOOK_DEVICE_ERROR);
  } catch (const std::exception& error) {
    return fail(error.what(), FLASHBOOK_DEVICE_ERROR);
  } catch (...) {
    return fail("unknown error", FLASHBOOK_DEVICE_ERROR);
  }
}

const Chapter& find(int number, int step) {
  const Chapter* chapter = chapter_numbered(number);
  if (chapter == nullptr) throw InputError("unknown chapter ", number, ": flashbook_chapter lists them");
  if (step < 1 || step > chapter->last_step())
    throw InputError("chapter ", number, " has no step ", step, ": it has steps 1 to ", chapter->last_step());
  return *chapter;
}

/// Returns the chapter with this step. Throws InputError if the step performs none of these operations.
const Chapter& find(int number, int step, std::initializer_list<Operation> operations) {
  const Chapter& chapter = find(number, step);
  const Operation operation = chapter.step(step).operation;
  if (std::ranges::count(operations, operation) > 0) return chapter;
  std::string others;
  for (const Chapter* other : all_chapters())
    if (!other->steps_of(*operations.begin()).empty())
      others += (others.empty() ? "" : " or ") + std::to_string(other->number);
  constexpr const char* kFunctions[] = {"flashbook_attention", "flashbook_backward", "flashbook_decode"};
  throw InputError("step ", step, " of chapter ", number, " is for ", name_of(operation), ": use ",
                   kFunctions[int(operation)], " or its masked form, or a step for ",
                   name_of(*operations.begin()), " in chapter ", others);
}

template <typename T>
T& required(T* pointer, const char* name) {
  if (pointer == nullptr) throw InputError(name, " is null: pass its address");
  return *pointer;
}

/// A caller's struct. If the caller's header is older than this one, the missing fields are 0. `first` is the
/// struct's size in the first version of the header.
template <typename T>
T completed(const T* from, const char* name, std::size_t first) {
  const std::size_t size = required(from, name).size;
  if (size < first || size > sizeof(T))
    throw InputError(name, ".size is ", size, ": set it to sizeof, ", sizeof(T),
                     " in this library's flashbook.h");
  T given = {};
  std::memcpy(&given, from, size);
  return given;
}

/// Returns a caller's array in device memory; null if it has none.
template <typename T>
Array<T> array_of(const T* pointer, double entries) {
  // The check of its count rejects an array that is too long for any problem.
  return pointer == nullptr ? Array<T>{} : Array<T>::on_device(int64_t(std::clamp(entries, 0.0, 0x1p62)));
}

Paging paging_of(const FlashbookShape& shape, const FlashbookCache& cache) {
  if (cache.page_table == nullptr && cache.shared_keys != 0)
    throw InputError("shared_keys needs pages, and page_table is null: set page_table, or clear shared_keys");
  const Array<int> paddings = array_of(cache.paddings, shape.batch);
  if (cache.page_table == nullptr) return {.paddings = paddings};
  if (cache.page_rows < 1) throw InputError("page_rows is ", cache.page_rows, ": set it to at least 1");
  const int64_t pages_per_sequence = ceil_div(int64_t(shape.seqlen_k), cache.page_rows);
  return {.rows = cache.page_rows,
          .pages = cache.pages,
          .table = array_of(cache.page_table, double(shape.batch) * double(pages_per_sequence)),
          .shared = cache.shared_keys,
          .paddings = paddings};
}

FlashbookCache completed(const FlashbookCache* cache) {
  return cache == nullptr ? FlashbookCache{}
                          : completed(cache, "cache", offsetof(FlashbookCache, shared_keys));
}

FlashbookMask completed(const FlashbookMask* mask) {
  return completed(mask, "mask", offsetof(FlashbookMask, bias));
}

FlashbookGradients completed(const FlashbookGradients* gradients) {
  return completed(gradients, "gradients", offsetof(FlashbookGradients, d_bias));
}

/// Translates a mask into a problem's features.
void apply_mask(const FlashbookMask& mask, Spec& spec) {
  Visibility& v = spec.visibility;
  v.window = {mask.window_left, mask.window_right, mask.sinks}, v.prefix = mask.prefix;
  if (mask.documents < 0) throw InputError("documents is negative: set it to the number of documents, or 0");
  if (mask.documents > 0) {
    required(mask.first_query, "first_query"), required(mask.first_key, "first_key");
    v.documents = {array_of(mask.first_query, mask.documents + 1.0),
                   array_of(mask.first_key, mask.documents + 1.0)};
  }
  if (mask.columns != nullptr)
    v.columns = {
        mask.column_heads, mask.bounds,
        array_of(mask.columns, double(spec.batch) * mask.column_heads * spec.seqlen_k * mask.bounds)};
  if (mask.block_queries > 0) {
    required(mask.first_block, "first_block"), required(mask.key_blocks, "key_blocks");
    const int64_t rows = ceil_div(int64_t(spec.seqlen_q), mask.block_queries);
    v.blocks = {mask.block_queries, mask.block_keys, array_of(mask.first_block, double(rows) + 1)};
  }
  if (mask.pairs != nullptr) {
    const double rows = double(spec.batch) * mask.pair_heads * spec.seqlen_q;
    v.dense = {mask.pair_heads, array_of(mask.pairs, std::max(1.0, rows * spec.seqlen_k))};
  }
  spec.score.softcap = mask.softcap;
  if (mask.slope_sequences < 0)
    throw InputError(
        "slope_sequences is negative: set it to the number of sequences with their own slopes, or 0");
  spec.score.alibi = array_of(mask.slopes, double(spec.heads) * std::max(1, mask.slope_sequences));
  if (mask.bias != nullptr)
    spec.score.bias = {mask.bias_reach, array_of(mask.bias, spec.heads * (2.0 * mask.bias_reach + 1))};
  spec.score.sinks = array_of(mask.sink_logits, spec.heads);
  spec.score.dropout = mask.dropout;
  if (mask.dropout != 0) spec.score.seed = mask.seed;
}

/// A caller's description of a problem, in the structs of this header.
struct Call {
  int number = 0, step = 0;
  FlashbookShape shape = {};
  FlashbookCache cache = {};
  FlashbookMask mask = {};  ///< all 0 if there is no mask
  bool is_masked = false;
  FlashbookStrides d_o = {}, dq = {}, dk = {}, dv = {};
};

/// `mask` is null for calls without a mask.
Call call_of(const Chapter& chapter, int step, const FlashbookShape* shape, const FlashbookCache& cache = {},
             const FlashbookGradients& gradients = {}, const FlashbookMask* mask = nullptr) {
  return {.number = chapter.number,
          .step = step,
          .shape = completed(shape, "shape", offsetof(FlashbookShape, scaling)),
          .cache = cache,
          .mask = mask == nullptr ? FlashbookMask{} : completed(mask),
          .is_masked = mask != nullptr,
          .d_o = gradients.d_o_strides,
          .dq = gradients.dq_strides,
          .dk = gradients.dk_strides,
          .dv = gradients.dv_strides};
}

/// Returns a call's problem in the form that chapters use. Throws InputError if the step cannot run it.
Spec checked_spec(const Chapter& chapter, const Call& call) {
  const FlashbookShape& given = call.shape;
  const FlashbookCache& cache = call.cache;
  constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16, DType::e4m3};
  if (given.dtype < 0 || given.dtype >= int(std::size(kTypes)))
    throw InputError("dtype is ", given.dtype, ": set it to a FlashbookType, 0 to 3");
  constexpr Scaling kScalings[] = {Scaling::tensor, Scaling::head, Scaling::block};
  if (given.scaling < 0 || given.scaling >= int(std::size(kScalings)))
    throw InputError("scaling is ", given.scaling, ": set it to a FlashbookScaling, 0 to 2");
  const auto strides = [](const FlashbookStrides& of) { return Strides{of.batch, of.head, of.row}; };
  Spec spec{{.batch = given.batch,
             .heads = given.heads,
             .kv_heads = given.kv_heads,
             .seqlen_q = given.seqlen_q,
             .seqlen_k = given.seqlen_k,
             .head_dim = given.head_dim,
             .value_dim = given.value_dim != 0 ? given.value_dim : default_value_dim(given.head_dim),
             .dtype = kTypes[given.dtype],
             .scale = given.scale},
            Visibility::causal_if(given.causal != 0)};
  spec.e4m3 = {.scaling = kScalings[given.scaling], .cache = cache.e4m3 != 0};
  validate(spec);  // checked before allocating arrays of these sizes, and before strides, which with pages
                   // are distances between pages
  spec.layout = {.q = strides(given.q),
                 .k = strides(given.k),
                 .v = strides(given.v),
                 .o = strides(given.o),
                 .d_o = strides(call.d_o),
                 .dq = strides(call.dq),
                 .dk = strides(call.dk),
                 .dv = strides(call.dv)};
  spec.paging = paging_of(given, cache);
  spec.visibility.lengths = array_of(cache.lengths, given.batch);
  if (cache.first_query != nullptr && cache.queries < 1)
    throw InputError("queries is ", cache.queries, ": set it to the number of packed queries, at least 1");
  if (cache.first_query != nullptr) spec.batching.packed_queries = cache.queries;
  if (cache.splits < 0 || cache.splits > 1)
    throw InputError("splits is ", cache.splits, ": set it to 0 or 1");
  spec.batching.unsplit = cache.splits == 1;
  if (call.is_masked) {
    if (given.causal != 0) throw InputError("causal is set with a mask: set window_right to 0 instead");
    apply_mask(call.mask, spec);
  }
  validate(spec);
  if (!chapter.takes(spec.dtype))
    throw InputError("chapter ", chapter.number, " does not support ", name_of(spec.dtype),
                     ": set another dtype");
  if (const std::string reason = chapter.refusal(call.step, spec); !reason.empty()) throw InputError(reason);
  return spec;
}

/// Returns the bytes that the call made by `call` needs; -1 if the step cannot run that call.
template <typename MakeCall>
int64_t workspace_or_error(int number, int step, MakeCall call) {
  int64_t bytes = -1;
  guarded([&] {
    const Chapter& chapter = find(number, step);
    bytes = chapter.step(step).workspace_bytes(checked_spec(chapter, call(chapter)));
  });
  return bytes;
}

/// A problem that has been checked.
struct Checked {
  Spec spec;
  int64_t workspace;  ///< size in bytes
};

/// Caches this thread's recent checks. A model repeats the same few calls, and checking a call takes longer
/// than launching it.
class LastChecks {
 public:
  /// Returns the result for this call, cached or computed; it is valid until the next call. Throws
  /// InputError, and caches nothing, if the step cannot run the call.
  const Checked& operator()(const Chapter& chapter, const Call& call) {
    const Question asked(call, chapter.runs_on == device::Place::device ? device::current() : -1);
    if (const int place = place_of(asked); place >= 0) return known_[last_ = place].answer;
    Checked found = {checked_spec(chapter, call), 0};
    found.workspace = chapter.step(call.step).workspace_bytes(found.spec);
    next_ = (next_ + 1) % kCalls;
    last_ = next_;
    known_[last_] = {asked, std::move(found)};
    return known_[last_].answer;
  }

 private:
  static constexpr int kCalls = 16;

  /// Everything on which a check depends, as bytes. For a pointer, this is only whether it is null.
  struct Question {
    unsigned char bytes[sizeof(Call) + 2 * sizeof(int)] = {};  // unused bytes remain 0

    Question() = default;
    Question(Call call, int device) {  // the workspace may depend on the device
      uint32_t given = 0;
      const auto reduce = [&](auto&... pointers) {
        ((given = given << 1 | uint32_t(pointers != nullptr), pointers = nullptr), ...);
      };
      reduce(call.cache.lengths, call.cache.page_table, call.cache.paddings, call.cache.first_query);
      FlashbookMask& mask = call.mask;
      reduce(mask.first_query, mask.first_key, mask.columns, mask.first_block, mask.key_blocks, mask.slopes,
             mask.bias, mask.pairs, mask.sink_logits);
      std::size_t end = 0;
      const auto add = [&](const auto&... parts) {
        ((std::memcpy(bytes + end, &parts, sizeof parts), end += sizeof parts), ...);
      };
      // Structs with padding are copied field by field, since callers need not clear padding.
      const FlashbookShape& s = call.shape;
      add(device, given, call.number, call.step, int(call.is_masked), s.size, s.batch, s.heads, s.kv_heads,
          s.seqlen_q, s.seqlen_k, s.head_dim, s.causal, s.dtype, s.scale, s.q, s.k, s.v, s.o, s.scaling,
          s.value_dim, call.cache, mask, call.d_o, call.dq, call.dk, call.dv);
    }
    bool operator==(const Question& other) const {
      return std::memcmp(bytes, other.bytes, sizeof bytes) == 0;
    }
  };
  struct Known {
    Question question;
    Checked answer;
  };

  /// Returns the index of the cached answer; -1 if there is none.
  int place_of(const Question& asked) const {
    if (known_[last_].question == asked) return last_;
    for (int place = 0; place < kCalls; ++place)
      if (known_[place].question == asked) return place;
    return -1;
  }

  std::vector<Known> known_ = std::vector<Known>(kCalls);  // initially all 0, which matches no call
  int next_ = 0, last_ = 0;
};

/// Calls this thread's LastChecks.
const Checked& checked(const Chapter& chapter, const Call& call) {
  thread_local LastChecks last;
  return last(chapter, call);
}

// These structs have no padding: the size of each is the sum of its fields' sizes.
static_assert(sizeof(FlashbookCache) == 4 * sizeof(void*) + sizeof(std::size_t) + 6 * sizeof(int32_t));
static_assert(sizeof(FlashbookMask) == 9 * sizeof(void*) + sizeof(std::size_t) + 12 * sizeof(int32_t) +
                                           2 * sizeof(float) + sizeof(uint64_t));

constexpr std::size_t kRowAlignment = 16;  // in bytes: kernels load and store rows in 16-byte vectors
constexpr std::size_t kWorkspaceAlignment = 256;

void require_aligned(const void* pointer, const char* name, std::size_t alignment) {
  if (pointer == nullptr) throw InputError(name, " is null: set q, k, v, o and lse");
  if (reinterpret_cast<std::uintptr_t>(pointer) % alignment != 0)
    throw InputError(name, " is not aligned: pass an address that is a multiple of ", alignment,
                     " bytes, or copy the tensor to one");
}

/// Throws if the gradient of a bias is requested but not available.
void check_bias_gradient(const Chapter& chapter, int step, const Spec& spec) {
  if (spec.score.bias.values.empty())
    throw InputError("d_bias is set, but the mask has no bias: set bias, or leave d_bias null");
  if (chapter.step(step).same_bits)
    throw InputError("step ", step, " of chapter ", chapter.number,
                     " is deterministic, and the gradient of a bias is not: use a step that is not, "
                     "or leave d_bias null");
}

void launch(const Chapter& chapter, int step, const FlashbookShape* shape, const FlashbookCache& cache,
            const FlashbookTensors* tensors, const FlashbookGradients& gradients, void* stream,
            const FlashbookMask* mask = nullptr) {
  const Call call = call_of(chapter, step, shape, cache, gradients, mask);
  const auto& [problem, workspace] = checked(chapter, call);
  if (gradients.d_bias != nullptr) check_bias_gradient(chapter, step, problem);
  const FlashbookTensors given = completed(tensors, "tensors", offsetof(FlashbookTensors, q_scale));
  require_aligned(given.q, "q", kRowAlignment);
  require_aligned(given.k, "k", kRowAlignment);
  if (is_stored(problem, TensorId::v)) require_aligned(given.v, "v", kRowAlignment);
  require_aligned(given.o, "o", kRowAlignment);
  require_aligned(given.lse, "lse", alignof(float));
  if (workspace > 0 && given.workspace == nullptr)
    throw InputError("workspace is null: this step needs ", workspace, " bytes");
  if (workspace > 0) require_aligned(given.workspace, "workspace", kWorkspaceAlignment);
  Tensors all = {.q = given.q,
                 .k = given.k,
                 .v = given.v,
                 .o = given.o,
                 .lse = given.lse,
                 .d_o = gradients.d_o,
                 .dq = gradients.dq,
                 .dk = gradients.dk,
                 .dv = gradients.dv,
                 .d_lse = gradients.d_lse,
                 .d_bias = gradients.d_bias,
                 .workspace = given.workspace,
                 .q_scale = given.q_scale,
                 .k_scale = given.k_scale,
                 .v_scale = given.v_scale,
                 .k_mean = given.k_mean,
                 .v_mean = given.v_mean};
  for (const auto& [mean, name] : {std::pair(all.k_mean, "k_mean"), {all.v_mean, "v_mean"}})
    if (mean != nullptr) require_aligned(mean, name, kRowAlignment);
  for (const auto& [array, name] : {std::pair<const float*, const char*>(all.q_scale, "q_scale"),
                                    {all.k_scale, "k_scale"},
                                    {all.v_scale, "v_scale"},
                                    {all.d_bias, "d_bias"},
                                    {all.d_lse, "d_lse"}})
    if (array != nullptr) require_aligned(array, name, alignof(float));
  struct Table {
    TableId id;
    const void* array;
    const char* name;
    std::size_t alignment = alignof(float);
  };
  for (const Table& table : {Table{TableId::lengths, cache.lengths, "lengths"},
                             {TableId::page_table, cache.page_table, "page_table"},
                             {TableId::document_query, call.mask.first_query, "first_query"},
                             {TableId::document_query, cache.first_query, "first_query"},
                             {TableId::document_key, call.mask.first_key, "first_key"},
                             {TableId::columns, call.mask.columns, "columns"},
                             {TableId::block_first, call.mask.first_block, "first_block"},
                             {TableId::block_keys, call.mask.key_blocks, "key_blocks"},
                             {TableId::dense, call.mask.pairs, "pairs", 1},
                             {TableId::slopes, call.mask.slopes, "slopes"},
                             {TableId::bias, call.mask.bias, "bias"},
                             {TableId::sinks, call.mask.sink_logits, "sink_logits"},
                             {TableId::paddings, cache.paddings, "paddings"}}) {
    if (table.array == nullptr) continue;
    require_aligned(table.array, table.name, table.alignment);
    all.tables[int(table.id)] = table.array;
  }
  if (chapter.step(step).operation == Operation::backward)
    for (const auto& [pointer, name] : {std::pair<const void*, const char*>(all.d_o, "d_o"),
                                        {all.dq, "dq"},
                                        {all.dk, "dk"},
                                        {all.dv, "dv"}}) {
      required(static_cast<const char*>(pointer), name);
      require_aligned(pointer, name, kRowAlignment);
    }
  chapter.step(step).run(problem, all, static_cast<device::Stream>(stream));
}

}  // namespace
}  // namespace flashbook

using namespace flashbook;

int32_t flashbook_chapter_count(void) { return int32_t(all_chapters().size()); }

int flashbook_chapter(int32_t place, FlashbookChapter* chapter) {
  return guarded([&] {
    if (place < 0 || place >= flashbook_chapter_count())
      throw InputError("place is ", place, ": there are ", flashbook_chapter_count(),
                       " chapters, counted from 0");
    const Chapter& from = *all_chapters()[place];
    required(chapter, "chapter") = {from.number, int32_t(from.last_step()),
                                    from.runs_on == device::Place::device, from.name, from.title};
  });
}

int flashbook_step(int number, const char* slug) {
  int step = 0;
  guarded([&] {
    const Chapter& chapter = find(number, 1);
    step = chapter.place(&required(slug, "slug"));
  });
  return step;
}

const char* flashbook_step_slug(int chapter, int step) {
  const char* slug = nullptr;
  guarded([&] { slug = find(chapter, step).step(step).slug; });
  return slug;
}

const char* flashbook_step_name(int chapter, int step) {
  const char* name = nullptr;
  guarded([&] { name = find(chapter, step).step(step).name; });
  return name;
}

int flashbook_attention(int chapter, int step, const FlashbookShape* shape, const FlashbookTensors* tensors,
                        void* stream) {
  return guarded([&] {
    launch(find(chapter, step, {Operation::forward, Operation::decode}), step, shape, {}, tensors, {},
           stream);
  });
}

int flashbook_backward(int chapter, int step, const FlashbookShape* shape, const FlashbookTensors* tensors,
                       const FlashbookGradients* gradients, void* stream) {
  return guarded([&] {
    launch(find(chapter, step, {Operation::backward}), step, shape, {}, tensors, completed(gradients),
           stream);
  });
}

int flashbook_decode(int chapter, int step, const FlashbookShape* shape, const FlashbookCache* cache,
                     const FlashbookTensors* tensors, void* stream) {
  return guarded([&] {
    launch(find(chapter, step, {Operation::decode}), step, shape, completed(cache), tensors, {}, stream);
  });
}

int flashbook_masked_decode(int chapter, int step, const FlashbookShape* shape, const FlashbookCache* cache,
                            const FlashbookMask* mask, const FlashbookTensors* tensors, void* stream) {
  return guarded([&] {
    launch(find(chapter, step, {Operation::decode}), step, shape, completed(cache), tensors, {}, stream,
           &required(mask, "mask"));
  });
}

int flashbook_masked(int chapter, int step, const FlashbookShape* shape, const FlashbookMask* mask,
                     const FlashbookTensors* tensors, void* stream) {
  return guarded([&] {
    launch(find(chapter, step, {Operation::forward}), step, shape, {}, tensors, {}, stream,
           &required(mask, "mask"));
  });
}

int flashbook_masked_backward(int chapter, int step, const FlashbookShape* shape, const FlashbookMask* mask,
                              const FlashbookTensors* tensors, const FlashbookGradients* gradients,
                              void* stream) {
  return guarded([&] {
    launch(find(chapter, step, {Operation::backward}), step, shape, {}, tensors, completed(gradients), stream,
           &required(mask, "mask"));
  });
}

int64_t flashbook_masked_workspace_bytes(int chapter, int step, const FlashbookShape* shape,
                                         const FlashbookMask* mask) {
  return workspace_or_error(chapter, step, [&](const Chapter& found) {
    return call_of(found, step, shape, {}, {}, &required(mask, "mask"));
  });
}

int64_t flashbook_decode_workspace_bytes(int chapter, int step, const FlashbookShape* shape,
                                         const FlashbookCache* cache) {
  return workspace_or_error(
      chapter, step, [&](const Chapter& found) { return call_of(found, step, shape, completed(cache)); });
}

int64_t flashbook_masked_decode_workspace_bytes(int chapter, int step, const FlashbookShape* shape,
                                                const FlashbookCache* cache, const FlashbookMask* mask) {
  return workspace_or_error(chapter, step, [&](const Chapter& found) {
    return call_of(found, step, shape, completed(cache), {}, &required(mask, "mask"));
  });
}

int64_t flashbook_workspace_bytes(int chapter, int step, const FlashbookShape* shape) {
  return workspace_or_error(chapter, step, [&](const Chapter& found) { return call_of(found, step, shape); });
}

int flashbook_cost(int chapter, int step, const FlashbookShape* shape, double* flops, double* memory_bytes) {
  return guarded([&] {
    const Chapter& found = find(chapter, step);
    const Spec problem = checked_spec(found, call_of(found, step, shape));
    required(flops, "flops") = ::flashbook::flops(problem, found.step(step).operation);
    required(memory_bytes, "memory_bytes") = found.step(step).memory_bytes(problem);
  });
}

void* flashbook_allocate(size_t bytes) {
  void* memory = nullptr;
  guarded([&] { memory = device::backend::allocate(bytes); });
  return memory;
}

void flashbook_free(void* memory) {
  if (memory != nullptr) device::backend::free(memory);
}

const char* flashbook_last_error(void) { return last_error.c_str(); }

const char* flashbook_toolkit(void) { return flashbook::toolkit(); }

const char* flashbook_version(void) { return FLASHBOOK_VERSION; }

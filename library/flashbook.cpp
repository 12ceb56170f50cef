#include "library/flashbook.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/app/machine_context.h"
#include "common/attention/cost.h"
#include "common/attention/error.h"
#include "common/device/backend.h"
#include "common/device/queue.h"
#include "common/features/definition.h"
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

/// Runs `body` likewise, and returns its result, or `otherwise` if it failed.
template <typename T, typename Body>
T result_or(T otherwise, Body body) noexcept {
  guarded([&] { otherwise = body(); });
  return otherwise;
}

const Chapter& find(int number, int step) {
  const Chapter* chapter = chapter_numbered(number);
  if (chapter == nullptr) throw InputError("unknown chapter ", number, ": flashbook_chapter lists them");
  if (step < 1 || step > chapter->last_step())
    throw InputError("chapter ", number, " has no step ", step, ": it has steps 1 to ", chapter->last_step());
  return *chapter;
}

/// Returns the chapter with this step. Throws InputError if the step does not compute gradients, or does
/// although it should not.
const Chapter& find(int number, int step, bool backward) {
  const Chapter& chapter = find(number, step);
  const Operation operation = chapter.step(step).operation;
  if ((operation == Operation::backward) != backward)
    throw InputError("step ", step, " of chapter ", number, " is for ", name_of(operation), ": use ",
                     backward ? "flashbook_attention, or a step for backward"
                              : "flashbook_backward, or a step for forward or decode");
  return chapter;
}

template <typename T>
T& required(T* pointer, const char* name) {
  if (pointer == nullptr) throw InputError(name, " is null: pass its address");
  return *pointer;
}

/// Returns a caller's struct. Throws InputError if the caller's header has another size.
template <typename T>
T copied(const T* from, const char* name) {
  const std::size_t size = required(from, name).size;
  if (size != sizeof(T))
    throw InputError(name, ".size is ", size, ": set it to sizeof, ", sizeof(T),
                     " in this library's flashbook.h");
  return *from;
}

/// A caller's problem: its sizes, and the features that follow in the caller's memory.
struct Problem {
  struct Given {
    const CStruct* type;
    const char* at;

    /// Returns the size of what precedes the pointers.
    std::size_t values() const { return type->size - type->pointer_count * sizeof(void*); }
  };
  FlashbookProblem sizes;
  Given features[int(Feature::unknown)];

  std::span<const Given> given() const { return {features, std::size_t(sizes.features)}; }

  explicit Problem(const FlashbookProblem* problem) : sizes(copied(problem, "problem")) {
    if (sizes.features < 0 || sizes.features > int(std::size(features)))
      throw InputError("features is ", sizes.features,
                       ": set it to the number of structs that follow the problem in memory");
    const char* at = reinterpret_cast<const char*>(problem + 1);
    Features seen;
    for (int i = 0; i < sizes.features; ++i) {
      int32_t kind;
      std::memcpy(&kind, at, sizeof kind);
      const auto known = std::ranges::find(definitions(), kind, [](auto* known) { return known->in_c.kind; });
      if (kind == 0 || known == definitions().end())
        throw InputError("feature ", i + 1, " has kind ", kind,
                         ": set it to the constant of its struct, such as FLASHBOOK_WINDOW");
      const Feature feature{int(known - definitions().begin())};
      if (seen.has(feature))
        throw InputError("feature ", i + 1, ", ", name_of(feature),
                         ", is given twice: leave one of them out");
      seen = seen | feature;
      features[i] = {&(*known)->in_c, at};
      at += features[i].type->size;
    }
  }
};

/// Returns a caller's problem in the form that chapters use. Throws InputError if the step cannot run it.
Spec checked_spec(const Chapter& chapter, int step, const Problem& problem) {
  const FlashbookProblem& given = problem.sizes;
  if (given.dtype < 0 || given.dtype > int(DType::e4m3))
    throw InputError("dtype is ", given.dtype, ": set it to a FlashbookType, 0 to 3");
  Spec spec{{.batch = given.batch,
             .heads = given.heads,
             .kv_heads = given.kv_heads,
             .seqlen_q = given.seqlen_q,
             .seqlen_k = given.seqlen_k,
             .head_dim = given.head_dim,
             .value_dim = given.value_dim != 0 ? given.value_dim : default_value_dim(given.head_dim),
             .dtype = DType(given.dtype),
             .scale = given.scale}};
  validate(spec);  // the features' arrays have these sizes
  for (const Problem::Given& feature : problem.given()) feature.type->read(feature.at, spec);
  validate(spec);
  if (!chapter.takes(spec.dtype))
    throw InputError("chapter ", chapter.number, " does not support ", name_of(spec.dtype),
                     ": set another dtype");
  if (const std::string reason = chapter.refusal(step, spec); !reason.empty()) throw InputError(reason);
  return spec;
}

/// Caches this thread's recent checks. A model repeats the same few calls, and checking a call takes longer
/// than launching it.
class LastChecks {
 public:
  struct Checked {
    std::string question;  ///< everything on which the check depends: what is given, except for pointers
    Spec spec;
    int64_t workspace;  ///< size in bytes
  };

  /// Returns the result for this call, cached or computed; it is valid until the next call. Throws
  /// InputError, and caches nothing, if the step cannot run the call.
  const Checked& operator()(const Chapter& chapter, int step, const Problem& problem) {
    asked_.clear();
    // The workspace may depend on the device.
    const int device = chapter.runs_on == device::Place::device ? device::current() : -1;
    const int call[] = {device, chapter.number, step};
    add(call, sizeof call);
    add(&problem.sizes, sizeof problem.sizes);
    for (const Problem::Given& feature : problem.given()) add(feature.at, feature.values());
    if (known_[last_].question == asked_) return known_[last_];
    const auto known = std::ranges::find(known_, asked_, &Checked::question);
    if (known != known_.end()) return known_[last_ = std::size_t(known - known_.begin())];
    Checked found = {asked_, checked_spec(chapter, step, problem), 0};
    found.workspace = chapter.step(step).workspace_bytes(found.spec);
    last_ = next_ = (next_ + 1) % known_.size();
    return known_[last_] = std::move(found);
  }

 private:
  void add(const void* bytes, std::size_t count) { asked_.append(static_cast<const char*>(bytes), count); }

  std::string asked_;
  std::vector<Checked> known_ = std::vector<Checked>(16);
  std::size_t next_ = 0, last_ = 0;
};

constexpr std::size_t kRowAlignment = 16;  // in bytes: kernels load and store rows in 16-byte vectors
constexpr std::size_t kWorkspaceAlignment = 256;

void require_aligned(const void* pointer, const char* name, std::size_t alignment, bool may_be_null = false) {
  if (pointer == nullptr && !may_be_null)
    throw InputError(name, " is null: set it to the address of its memory");
  if (reinterpret_cast<std::uintptr_t>(pointer) % alignment != 0)
    throw InputError(name, " is not aligned: pass an address that is a multiple of ", alignment,
                     " bytes, or copy the tensor to one");
}

/// Throws if the gradient of a bias is requested but not available.
void check_bias_gradient(const Chapter& chapter, int step, const Spec& spec) {
  if (spec.score.bias.values.empty())
    throw InputError("d_bias is set, but there is no FlashbookBias: give it, or leave d_bias null");
  if (chapter.step(step).same_bits)
    throw InputError("step ", step, " of chapter ", chapter.number,
                     " is deterministic, and the gradient of a bias is not: use a step that is not, "
                     "or leave d_bias null");
}

void launch(const Chapter& chapter, int step, const FlashbookProblem* given, const FlashbookTensors* tensors,
            const FlashbookGradients& to, void* stream) {
  const Problem problem(given);
  thread_local LastChecks checked;
  const auto& [question, spec, workspace] = checked(chapter, step, problem);
  if (to.d_bias != nullptr) check_bias_gradient(chapter, step, spec);
  const FlashbookTensors from = copied(tensors, "tensors");
  if (workspace > 0 && from.workspace == nullptr)
    throw InputError("workspace is null: this step needs ", workspace, " bytes");
  const bool is_forward = chapter.step(step).operation != Operation::backward;
  const struct {
    const void* address;
    const char* name;
    std::size_t alignment = kRowAlignment;
    bool may_be_null = false;
  } given_memory[] = {{from.q, "q"},
                      {from.k, "k"},
                      {from.v, "v", kRowAlignment, !is_stored(spec, TensorId::v)},
                      {from.o, "o"},
                      {from.lse, "lse", alignof(float)},
                      {from.workspace, "workspace", kWorkspaceAlignment, true},
                      {to.d_o, "d_o", kRowAlignment, is_forward},
                      {to.dq, "dq", kRowAlignment, is_forward},
                      {to.dk, "dk", kRowAlignment, is_forward},
                      {to.dv, "dv", kRowAlignment, is_forward},
                      {to.d_bias, "d_bias", alignof(float), true},
                      {to.d_lse, "d_lse", alignof(float), true}};
  for (const auto& [address, name, alignment, may_be_null] : given_memory)
    require_aligned(address, name, alignment, may_be_null);
  Tensors all = {from.q, from.k, from.v, from.o,   from.lse,  to.d_o,
                 to.dq,  to.dk,  to.dv,  to.d_lse, to.d_bias, from.workspace};
  for (const Problem::Given& feature : problem.given()) {
    const char* at = feature.at + feature.values();
    for (const CStruct::Pointer& pointer : std::span(feature.type->pointers, feature.type->pointer_count)) {
      const void* address;
      std::memcpy(&address, at, sizeof address);
      require_aligned(address, pointer.name, pointer.alignment, pointer.may_be_null);
      std::memcpy(reinterpret_cast<char*>(&all) + pointer.to, at, sizeof address);
      at += sizeof address;
    }
  }
  chapter.step(step).run(spec, all, static_cast<device::Stream>(stream));
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

int flashbook_step(int chapter, const char* slug) {
  return result_or(0, [&] { return find(chapter, 1).place(&required(slug, "slug")); });
}

const char* flashbook_step_slug(int chapter, int step) {
  return result_or<const char*>(nullptr, [&] { return find(chapter, step).step(step).slug; });
}

const char* flashbook_step_name(int chapter, int step) {
  return result_or<const char*>(nullptr, [&] { return find(chapter, step).step(step).name; });
}

int flashbook_attention(int chapter, int step, const FlashbookProblem* problem,
                        const FlashbookTensors* tensors, void* stream) {
  return guarded([&] { launch(find(chapter, step, false), step, problem, tensors, {}, stream); });
}

int flashbook_backward(int chapter, int step, const FlashbookProblem* problem,
                       const FlashbookTensors* tensors, const FlashbookGradients* gradients, void* stream) {
  return guarded([&] {
    launch(find(chapter, step, true), step, problem, tensors, copied(gradients, "gradients"), stream);
  });
}

int64_t flashbook_workspace_bytes(int chapter, int step, const FlashbookProblem* problem) {
  return result_or<int64_t>(-1, [&] {
    const Chapter& found = find(chapter, step);
    return found.step(step).workspace_bytes(checked_spec(found, step, Problem(problem)));
  });
}

int flashbook_cost(int chapter, int step, const FlashbookProblem* problem, double* flops,
                   double* memory_bytes) {
  return guarded([&] {
    const Chapter& found = find(chapter, step);
    const Problem given(problem);
    const Spec spec = checked_spec(found, step, given);
    for (const Problem::Given& feature : given.given())
      if (feature.type->pointer_count > 0 && !feature.type->pointers[0].may_be_null)
        throw InputError(feature.type->pointers[0].name,
                         " is in device memory, where the cost model cannot read it: leave its feature out");
    required(flops, "flops") = ::flashbook::flops(spec, found.step(step).operation);
    required(memory_bytes, "memory_bytes") = found.step(step).memory_bytes(spec);
  });
}

void* flashbook_allocate(size_t bytes) {
  return result_or<void*>(nullptr, [&] { return device::backend::allocate(bytes); });
}

void flashbook_free(void* memory) {
  if (memory != nullptr) device::backend::free(memory);
}

const char* flashbook_last_error(void) { return last_error.c_str(); }

const char* flashbook_toolkit(void) { return flashbook::toolkit(); }

const char* flashbook_version(void) { return FLASHBOOK_VERSION; }
